#include <ddp/samplers/distributed_sampler.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/process_group_impl.h>

namespace ddp {
namespace {

constexpr int64_t kMaxWeights = int64_t(1) << 24; // multinomial's limit

at::Tensor checked(
    const at::Tensor& weights,
    size_t num_samples,
    const WeightedSamplerOptions& options) {
  DDP_CHECK_VALUE(
      weights.defined() && weights.dim() == 1 && weights.numel() > 0 &&
          weights.numel() <= kMaxWeights && weights.is_floating_point(),
      "DistributedWeightedSampler: expected a floating-point tensor of weights "
      "with 1 dimension and 1 to {} elements",
      kMaxWeights);
  // Python draws from doubles; floats would give other samples.
  const auto own = weights.detach().to(
      at::TensorOptions(at::kCPU).dtype(at::kDouble),
      /*non_blocking=*/false,
      /*copy=*/true);
  DDP_CHECK_VALUE(
      own.ge(0).all().item<bool>() && own.sum().isfinite().item<bool>(),
      "DistributedWeightedSampler: a weight is negative, infinite or not a "
      "number, or their sum is infinite");
  const auto possible = own.gt(0).sum().item<int64_t>();
  DDP_CHECK_VALUE(
      possible > 0, "DistributedWeightedSampler: all weights are 0");
  DDP_CHECK_VALUE(
      options.replacement() || num_samples <= static_cast<size_t>(possible),
      "DistributedWeightedSampler: {} samples without replacement, but only "
      "{} weights are above 0",
      num_samples,
      possible);
  return own;
}

} // namespace

DistributedWeightedSampler::DistributedWeightedSampler(
    const at::Tensor& weights,
    size_t num_samples,
    const ProcessGroup& group,
    const WeightedSamplerOptions& options)
    : DistributedWeightedSampler(
          weights,
          num_samples,
          group.size(),
          group.rank(),
          options) {
  check_same(group);
  detail::ProcessGroupImpl::of(group).shuffles = true;
}

DistributedWeightedSampler::DistributedWeightedSampler(
    const at::Tensor& weights,
    size_t num_samples,
    int64_t num_replicas,
    int64_t rank,
    const WeightedSamplerOptions& options)
    : ShardedSampler(
          "DistributedWeightedSampler",
          num_samples,
          num_replicas,
          rank,
          Remainder::kRepeat),
      weights_(checked(weights, num_samples, options)),
      weights_hash_(static_cast<int64_t>(detail::tensor_hash(weights_, 0))),
      options_(options) {}

at::Tensor DistributedWeightedSampler::sequence(size_t length, int64_t epoch)
    const {
  auto generator = at::detail::createCPUGenerator(
      options_.seed() + static_cast<uint64_t>(epoch));
  return at::multinomial(
      weights_,
      static_cast<int64_t>(length),
      options_.replacement(),
      std::move(generator));
}

torch::OrderedDict<std::string, int64_t> DistributedWeightedSampler::identity()
    const {
  torch::OrderedDict<std::string, int64_t> result;
  result.insert("weights", weights_hash_);
  result.insert("replacement", options_.replacement());
  result.insert("seed", static_cast<int64_t>(options_.seed()));
  return result;
}

} // namespace ddp
