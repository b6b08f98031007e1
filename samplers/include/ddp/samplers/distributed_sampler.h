#pragma once

#include <ddp/export.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/arg.h>

namespace ddp {

/// How a `DistributedSampler` orders and divides the dataset. Every rank has to
/// give the same.
struct SamplerOptions {
  /// Whether to draw a new order in each epoch, or to keep the dataset's.
  TORCH_ARG(bool, shuffle) = true;
  /// The order of epoch `e` depends on `seed + e` alone.
  TORCH_ARG(uint64_t, seed) = 0;
  /// Where the ranks do not divide the dataset: leave out its tail, or, if
  /// false, repeat its head until they do.
  TORCH_ARG(bool, drop_last) = false;
};

/// Gives each rank its share of a dataset, equally many samples on every rank.
///
/// The indices are those of Python's `torch.utils.data.DistributedSampler`, one
/// by one: a permutation drawn from a generator of its own, padded or cut to a
/// multiple of the number of ranks, of which rank `r` of `n` takes every n-th
/// from the r-th on. The global random state is neither used nor changed. An
/// empty dataset, which Python takes, is refused.
class DDP_API DistributedSampler : public ShardedSampler {
 public:
  /// The share of this process in `group`. `size` is the dataset's, in samples.
  DistributedSampler(
      size_t size,
      const ProcessGroup& group,
      const SamplerOptions& options = {});

  /// The share of `rank` among `num_replicas`, without a group. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas and size > 0.
  DistributedSampler(
      size_t size,
      int64_t num_replicas,
      int64_t rank,
      const SamplerOptions& options = {});

 private:
  at::Tensor sequence(size_t length, int64_t epoch) const override;
  torch::OrderedDict<std::string, int64_t> identity() const override;

  SamplerOptions options_;
};

} // namespace ddp
