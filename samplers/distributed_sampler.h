#pragma once

#include <torch/arg.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ddp {

class ProcessGroup;

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
/// from the r-th on. The global random state is neither used nor changed. Not
/// collective: ranks agree because they compute the same.
///
/// `torch::data::make_data_loader` copies its sampler. Copies share the epoch,
/// so that `set_epoch` on the one that the program holds reaches the loader's;
/// each has its own order and position. Not safe to use from several threads at
/// once (a data loader asks its sampler from one).
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// The share of this process in `group`. `size` is the dataset's, in samples.
  DistributedSampler(
      size_t size,
      const ProcessGroup& group,
      const SamplerOptions& options = {});

  /// The share of `rank` among `num_replicas`, without a group. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas.
  DistributedSampler(
      size_t size,
      int64_t num_replicas,
      int64_t rank,
      const SamplerOptions& options = {});

  // A copy, never a move: what a loader was given goes on to take `set_epoch`.
  DistributedSampler(const DistributedSampler&) = default;
  DistributedSampler& operator=(const DistributedSampler&) = default;
  ~DistributedSampler() override = default;

  /// Sets the epoch, in all copies, whose order the next `reset()` draws. A
  /// data loader resets its sampler in `begin()`: call this before each loop
  /// over the loader, or every epoch has the same order.
  void set_epoch(int64_t epoch);

  /// The epoch last set; 0 at first.
  int64_t epoch() const;

  /// The number of samples this rank draws in an epoch, the same on all ranks.
  size_t size() const;

  /// Draws the order of the epoch and starts it anew, over a dataset of
  /// `new_size` samples where one is given.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// The next `batch_size` indices, fewer at the end, then nothing.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Stores the epoch of the current order and the position in it.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Goes on where `save` was called, in a sampler of the same dataset, ranks
  /// and options. Throws `c10::Error` if the position lies beyond the end.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void draw();

  size_t dataset_size_;
  size_t num_replicas_;
  size_t rank_;
  SamplerOptions options_;
  std::shared_ptr<int64_t> epoch_ = std::make_shared<int64_t>(0);
  int64_t drawn_epoch_ = 0;
  std::vector<size_t> indices_;
  size_t position_ = 0;
};

} // namespace ddp
