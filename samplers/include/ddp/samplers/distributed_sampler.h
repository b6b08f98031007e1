#pragma once

#include <ddp/internal/export.h>
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

/// Gives each sample of a dataset to exactly one rank, in the dataset's order,
/// for evaluation: what padding repeats would count twice. So the first ranks
/// may have one sample more, and one batch more: no collective in the loop, but
/// one after it (`all_reduce` of the sums).
class DDP_API EvaluationSampler : public ShardedSampler {
 public:
  /// As those of `DistributedSampler`.
  EvaluationSampler(size_t size, const ProcessGroup& group);
  EvaluationSampler(size_t size, int64_t num_replicas, int64_t rank);
};

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
/// seeded with `seed + epoch`. If the ranks do not divide it, its head comes
/// again.
class DDP_API DistributedWeightedSampler : public ShardedSampler {
 public:
  /// `weights`: one per sample, of shape [samples], floating point, not
  /// negative, no more than 2^24 of them. `num_samples`: how many to draw in an
  /// epoch, over all ranks. Throws `c10::ValueError` for others, and without
  /// replacement if fewer weights than `num_samples` are above 0.
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

/// How a `StreamSampler` divides a stream. Every rank has to give the same.
struct StreamSamplerOptions {
  /// Samples in an epoch, over all ranks; an epoch without it has no end.
  TORCH_ARG(std::optional<size_t>, epoch_size) = std::nullopt;
};

/// Deals a stream of unknown or endless length to the ranks: rank `r` of `n`
/// draws the stream's samples r, r + n, r + 2n, ...
///
/// With an `epoch_size`, epoch `e` begins at sample e * epoch_size, if the one
/// before it ended, so that nothing comes twice; what the ranks do not divide
/// of it is left out, so that all draw equally many. Without one, each epoch
/// goes through the stream from its beginning, and `size()` is a number that no
/// loop reaches. `state_dict` says how far all ranks are.
///
/// A stream that ends is a LibTorch `StatefulDataset` with the sampler inside,
/// which finds the end, on some ranks a batch before the others: ranks agree in
/// each step whether to take it, by an all-reduce (docs/data.md has the loop).
class DDP_API StreamSampler : public ShardedSampler {
 public:
  /// The share of this process in `group`.
  explicit StreamSampler(
      const ProcessGroup& group,
      const StreamSamplerOptions& options = {});

  /// The same for `rank` among `num_replicas`, without a group. Throws as the
  /// others do, and if `epoch_size` is 0.
  StreamSampler(
      int64_t num_replicas,
      int64_t rank,
      const StreamSamplerOptions& options = {});

 private:
  size_t first_index(size_t length, int64_t epoch) const override;

  StreamSamplerOptions options_;
};

} // namespace ddp
