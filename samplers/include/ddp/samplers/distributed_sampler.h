#pragma once

#include <ddp/internal/export.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/arg.h>

namespace ddp {

/// How a `DistributedSampler` orders and divides the dataset. All ranks must
/// pass the same options.
struct SamplerOptions {
  /// Whether each epoch has a new order, or the dataset's.
  TORCH_ARG(bool, shuffle) = true;
  /// The order of epoch `e` depends on `seed + e` only.
  TORCH_ARG(uint64_t, seed) = 0;
  /// If the number of ranks does not divide the dataset's size: whether to drop
  /// its tail, or to repeat its head.
  TORCH_ARG(bool, drop_last) = false;
};

/// Gives each rank its share of a dataset, with equally many samples per rank.
///
/// The indices are exactly those of Python's
/// `torch.utils.data.DistributedSampler`: a permutation from a separate
/// generator, padded or cut to a multiple of the number of ranks. Rank `r` of
/// `n` takes items r, r + n, r + 2n, ... of the permutation. The global random
/// state is neither used nor changed. Rejects an empty dataset, which Python
/// accepts.
class DDP_API DistributedSampler : public ShardedSampler {
 public:
  /// This process's share in `group`. `size` is the dataset's, in samples.
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

/// Gives each sample of a dataset to exactly one rank, in the dataset's order,
/// for evaluation: padding would count samples twice. The first ranks may have
/// one more sample and one more batch. Therefore use no collective in the loop;
/// use one after the loop (`all_reduce` of the sums).
class DDP_API EvaluationSampler : public ShardedSampler {
 public:
  /// As for `DistributedSampler`.
  EvaluationSampler(size_t size, const ProcessGroup& group);
  /// As above, for `rank` among `num_replicas`, without a group.
  EvaluationSampler(size_t size, int64_t num_replicas, int64_t rank);
};

/// How a `DistributedWeightedSampler` draws. All ranks must pass the same
/// options.
struct WeightedSamplerOptions {
  /// Whether a sample may be drawn several times in an epoch.
  TORCH_ARG(bool, replacement) = true;
  /// The samples of epoch `e` depend on `seed + e` only.
  TORCH_ARG(uint64_t, seed) = 0;
};

/// Draws samples with probabilities proportional to weights, across all ranks,
/// and gives equally many to each rank.
///
/// `torch.multinomial` on the CPU draws the sequence of an epoch, as in
/// Python's `torch.utils.data.WeightedRandomSampler`, from a generator seeded
/// with `seed + epoch`. If the number of ranks does not divide the sequence's
/// length, its head is repeated.
class DDP_API DistributedWeightedSampler : public ShardedSampler {
 public:
  /// `weights` has one element per sample, of shape [samples], floating point,
  /// non-negative, at most 2^24 elements. `num_samples` is the number of draws
  /// per epoch, across all ranks. Throws `c10::ValueError` for other weights,
  /// and without replacement if fewer than `num_samples` weights are above 0.
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

/// How a `StreamSampler` divides a stream. All ranks must pass the same
/// options.
struct StreamSamplerOptions {
  /// Samples in an epoch, across all ranks; unset: an epoch has no end.
  TORCH_ARG(std::optional<size_t>, epoch_size) = std::nullopt;
};

/// Divides a stream of unknown or infinite length among the ranks: rank `r` of
/// `n` draws the stream's samples r, r + n, r + 2n, ...
///
/// With an `epoch_size`, epoch `e` begins at sample e * epoch_size, the end of
/// the previous epoch: no sample is repeated. A remainder is dropped, so that
/// all ranks draw equally many samples. Without `epoch_size`, each epoch reads
/// the stream from its beginning, and `size()` is a number that no loop
/// reaches. `state_dict` contains the progress of all ranks.
///
/// For a stream that ends, write a LibTorch `StatefulDataset` with the sampler
/// inside. The dataset finds the end, on some ranks one batch earlier. An
/// all-reduce in each step must thus decide whether to use the batch (see
/// docs/data.md).
class DDP_API StreamSampler : public ShardedSampler {
 public:
  /// This process's share in `group`.
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
