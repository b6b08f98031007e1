#include <samplers/stream_sampler.h>

#include <c10/util/Exception.h>
#include <ddp/process_group.h>

#include <limits>

namespace ddp {
namespace {

// Lengths are int64 in states.
constexpr size_t kEndless = std::numeric_limits<int64_t>::max();

} // namespace

StreamSampler::StreamSampler(
    const ProcessGroup& group,
    const StreamSamplerOptions& options)
    : StreamSampler(group.size(), group.rank(), options) {}

StreamSampler::StreamSampler(
    int64_t num_replicas,
    int64_t rank,
    const StreamSamplerOptions& options)
    : ShardedSampler(
          "StreamSampler",
          options.epoch_size().value_or(kEndless),
          num_replicas,
          rank,
          Remainder::kDrop),
      options_(options) {}

at::Tensor StreamSampler::sequence(size_t /*length*/, int64_t /*epoch*/) const {
  return {};
}

size_t StreamSampler::first_index(size_t length, int64_t epoch) const {
  TORCH_CHECK_VALUE(
      epoch >= 0, "StreamSampler: the epoch is ", epoch, ", before the stream");
  return options_.epoch_size() ? static_cast<size_t>(epoch) * length : 0;
}

torch::OrderedDict<std::string, int64_t> StreamSampler::identity() const {
  return torch::OrderedDict<std::string, int64_t>();
}

} // namespace ddp
