#pragma once

#include <ddp/internal/export.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/arg.h>

namespace ddp {

/// Options of `DistributedSampler`. All ranks must pass the same options.
struct SamplerOptions {
  /// Whether each epoch has a new order; if false, epochs keep the dataset's
  /// order.
  TORCH_ARG(bool, shuffle) = true;
  /// The order of epoch `e` depends only on `seed + e`.
  TORCH_ARG(uint64_t, seed) = 0;
  /// Whether to drop the order's tail if the number of ranks does not divide
  /// the dataset's size; if false, the order's head is repeated.
  TORCH_ARG(bool, drop_last) = false;
};

/// Gives each rank its share of a dataset, with the same number of samples per
/// rank.
///
/// The indices are exactly those of Python's
/// `torch.utils.data.DistributedSampler`: a permutation from a separate
/// generator, padded or cut to a multiple of the number of ranks. Rank `r` of
/// `n` takes items r, r + n, r + 2n, ... of the permutation. The global random
/// state is neither used nor changed. Rejects an empty dataset, which Python
/// accepts.
class DDP_API DistributedSampler : public ShardedSampler {
 public:
  /// Draws this process's share in `group`. `size` is the dataset's size.
  DistributedSampler(
      size_t size,
      const ProcessGroup& group,
      const SamplerOptions& options = {});

  /// Draws the share of `rank` among `num_replicas`, without a group. Throws
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

/// Gives each sample of a dataset to exactly one rank, in the dataset's order,
/// for evaluation, since padding would count samples twice. The first ranks may
/// have one more sample and one more batch, so call a collective, such as an
/// `all_reduce` of the sums, only after the loop.
class DDP_API EvaluationSampler : public ShardedSampler {
 public:
  /// As for `DistributedSampler`.
  EvaluationSampler(size_t size, const ProcessGroup& group);
  /// As above, for `rank` among `num_replicas`, without a group.
  EvaluationSampler(size_t size, int64_t num_replicas, int64_t rank);
};

/// Options of `DistributedWeightedSampler`. All ranks must pass the same
/// options.
struct WeightedSamplerOptions {
  /// Whether a sample may be drawn several times in an epoch.
  TORCH_ARG(bool, replacement) = true;
  /// The seed. Epoch `e` draws with the seed `seed + e`.
  TORCH_ARG(uint64_t, seed) = 0;
};

/// Draws samples with probabilities proportional to weights, across all ranks,
/// and gives each rank the same number of samples.
///
/// `torch.multinomial` on the CPU draws the sequence of an epoch, as in
/// Python's `torch.utils.data.WeightedRandomSampler`, from a generator seeded
/// with `seed + epoch`. If the number of ranks does not divide the sequence's
/// length, the sequence's head is repeated.
class DDP_API DistributedWeightedSampler : public ShardedSampler {
 public:
  /// `weights` is a floating-point tensor of shape [samples] with non-negative
  /// elements, at most 2^24. `num_samples` is the number of draws per epoch,
  /// across all ranks. Throws `c10::ValueError` for other weights, and without
  /// replacement if fewer than `num_samples` weights are above 0.
  DistributedWeightedSampler(
      const at::Tensor& weights,
      size_t num_samples,
      const ProcessGroup& group,
      const WeightedSamplerOptions& options = {});

  /// As above, for `rank` among `num_replicas`, without a group.
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

/// Options of `StreamSampler`. All ranks must pass the same options.
struct StreamSamplerOptions {
  /// The number of samples in an epoch, across all ranks. Unset: no end.
  TORCH_ARG(std::optional<size_t>, epoch_size) = std::nullopt;
};

/// Divides a stream of unknown or infinite length among the ranks: rank `r` of
/// `n` draws the stream's samples r, r + n, r + 2n, ...
///
/// With an `epoch_size`, epoch `e` begins at sample e * epoch_size, the end of
/// the previous epoch, so no sample is repeated. A remainder is dropped, so
/// that all ranks draw the same number of samples. Without `epoch_size`, each
/// new epoch (`set_epoch`) reads the stream from its beginning, and `size()` is
/// a number that no loop reaches. `state_dict` contains all ranks' progress.
///
/// For a stream that ends, write a LibTorch `StatefulDataset` with the sampler
/// inside. The dataset finds the end, which some ranks reach one batch earlier.
/// An all-reduce in each step must thus decide whether to use the batch (see
/// docs/data.md).
class DDP_API StreamSampler : public ShardedSampler {
 public:
  /// Draws this process's share in `group`.
  explicit StreamSampler(
      const ProcessGroup& group,
      const StreamSamplerOptions& options = {});

  /// As above, for `rank` among `num_replicas`, without a group. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas, or if `epoch_size` is
  /// 0.
  StreamSampler(
      int64_t num_replicas,
      int64_t rank,
      const StreamSamplerOptions& options = {});

 private:
  size_t first_index(size_t length, int64_t epoch) const override;

  StreamSamplerOptions options_;
};

} // namespace ddp
