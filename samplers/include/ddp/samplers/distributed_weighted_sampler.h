#pragma once

#include <ddp/export.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/arg.h>

namespace ddp {

/// How a `DistributedWeightedSampler` draws. Every rank has to give the same.
struct WeightedSamplerOptions {
  /// Whether a sample may come several times in an epoch.
  TORCH_ARG(bool, replacement) = true;
  /// What is drawn in epoch `e` depends on `seed + e` alone.
  TORCH_ARG(uint64_t, seed) = 0;
};

/// Draws samples with probabilities in proportion to weights, over all ranks,
/// and gives each rank its share, equally many on every rank.
///
/// The sequence of an epoch is what `torch.multinomial` draws on the CPU, and
/// so Python's `torch.utils.data.WeightedRandomSampler`, from a generator
/// seeded with `seed + epoch`. Where the ranks do not divide it, its head comes
/// again.
class DDP_API DistributedWeightedSampler : public ShardedSampler {
 public:
  /// `weights`: one per sample, of shape [samples], floating point, not
  /// negative, no more than 2^24 of them. `num_samples`: how many to draw in an
  /// epoch, over all ranks. Throws `c10::ValueError` for others, and without
  /// replacement where fewer weights than `num_samples` are above 0.
  DistributedWeightedSampler(
      const at::Tensor& weights,
      size_t num_samples,
      const ProcessGroup& group,
      const WeightedSamplerOptions& options = {});

  /// The same for `rank` among `num_replicas`, without a group.
  DistributedWeightedSampler(
      const at::Tensor& weights,
      size_t num_samples,
      int64_t num_replicas,
      int64_t rank,
      const WeightedSamplerOptions& options = {});

 private:
  at::Tensor sequence(size_t length, int64_t epoch) const override;
  torch::OrderedDict<std::string, int64_t> identity() const override;

  at::Tensor weights_;
  int64_t weights_hash_;
  WeightedSamplerOptions options_;
};

} // namespace ddp
