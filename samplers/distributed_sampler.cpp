#include <ddp/samplers/distributed_sampler.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <ddp/process_group/process_group_impl.h>

#include <limits>

namespace ddp {

DistributedSampler::DistributedSampler(
    size_t size,
    const ProcessGroup& group,
    const SamplerOptions& options)
    : DistributedSampler(size, group.size(), group.rank(), options) {
  check_same(group);
  if (options.shuffle()) {
    detail::ProcessGroupImpl::of(group).shuffles = true;
  }
}

DistributedSampler::DistributedSampler(
    size_t size,
    int64_t num_replicas,
    int64_t rank,
    const SamplerOptions& options)
    : ShardedSampler(
          "DistributedSampler",
          size,
          num_replicas,
          rank,
          options.drop_last() ? Remainder::kDrop : Remainder::kRepeat),
      options_(options) {}

at::Tensor DistributedSampler::sequence(size_t length, int64_t epoch) const {
  if (!options_.shuffle()) {
    return {};
  }
  auto generator = at::detail::createCPUGenerator(
      options_.seed() + static_cast<uint64_t>(epoch));
  const bool fits = length <= std::numeric_limits<int32_t>::max();
  return at::randperm( // the same numbers in either dtype
      static_cast<int64_t>(length),
      std::move(generator),
      fits ? at::kInt : at::kLong);
}

torch::OrderedDict<std::string, int64_t> DistributedSampler::identity() const {
  torch::OrderedDict<std::string, int64_t> result;
  result.insert("shuffle", options_.shuffle());
  result.insert("seed", static_cast<int64_t>(options_.seed()));
  return result;
}

EvaluationSampler::EvaluationSampler(size_t size, const ProcessGroup& group)
    : EvaluationSampler(size, group.size(), group.rank()) {
  check_same(group);
}

EvaluationSampler::EvaluationSampler(
    size_t size,
    int64_t num_replicas,
    int64_t rank)
    : ShardedSampler(
          "EvaluationSampler",
          size,
          num_replicas,
          rank,
          Remainder::kUneven) {}

} // namespace ddp
