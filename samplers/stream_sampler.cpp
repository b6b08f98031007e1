#include <ddp/samplers/distributed_sampler.h>

#include <ddp/internal/check.h>
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
    : StreamSampler(group.size(), group.rank(), options) {
  check_same(group);
}

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

size_t StreamSampler::first_index(size_t length, int64_t epoch) const {
  if (!options_.epoch_size()) {
    return 0;
  }
  DDP_CHECK_VALUE(
      epoch >= 0 && static_cast<size_t>(epoch) < kEndless / length,
      "StreamSampler: epoch {} of {} samples is negative, or its position "
      "overflows",
      epoch,
      length);
  return static_cast<size_t>(epoch) * length;
}

} // namespace ddp
