#pragma once

#include <ddp/internal/check.h>
#include <ddp/internal/export.h>
#include <torch/arg.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddp {

class ProcessGroup;

/// How the learning rate scales with the global batch.
enum class LearningRateScaling {
  kNone,
  /// In proportion to the batch (Goyal et al.: Accurate, large minibatch SGD,
  /// 2017).
  kLinear,
  /// By the square root of the ratio, as for Adam.
  kSquareRoot,
};

/// Options of `plan_batches`; batches are in samples. All ranks must pass the
/// same options.
struct BatchPlanOptions {
  /// The number of samples per optimizer step, across all ranks.
  TORCH_ARG(std::optional<int64_t>, global_batch) = std::nullopt;
  /// The number of samples per forward pass of a rank, usually as many as fit
  /// into memory.
  TORCH_ARG(std::optional<int64_t>, rank_batch) = std::nullopt;
  /// The number of backward passes per optimizer step, all but the last under a
  /// `no_sync` guard.
  TORCH_ARG(std::optional<int64_t>, accumulation_steps) = std::nullopt;
  /// The global batch for which the learning rate was tuned.
  TORCH_ARG(std::optional<int64_t>, reference_batch) = std::nullopt;
  /// How the learning rate scales with the global batch.
  TORCH_ARG(LearningRateScaling, scaling) = LearningRateScaling::kLinear;
};

/// Batch sizes with global_batch = rank_batch * ranks * accumulation_steps.
struct BatchPlan {
  int64_t global_batch = 0; ///< Samples per step, across all ranks.
  int64_t rank_batch = 0; ///< Samples per backward pass of a rank.
  int64_t accumulation_steps = 1; ///< Backward passes per step.
  /// The factor for the learning rate; 1 without a reference batch.
  double learning_rate_scale = 1;
};

/// Computes the sizes that `options` leave unset, for the ranks of `group`;
/// `accumulation_steps` is 1 if no other size determines it. If the number of
/// ranks changes, only unset sizes change, so training with a fixed global
/// batch stays the same. Throws `c10::ValueError` if the sizes contradict each
/// other; the message contains the sizes and the nearest valid global batches.
/// Not collective.
DDP_API BatchPlan
plan_batches(const BatchPlanOptions& options, const ProcessGroup& group);

/// As above, for `num_replicas` ranks.
DDP_API BatchPlan
plan_batches(const BatchPlanOptions& options, int64_t num_replicas);

/// Draws batches of a fixed size from another sampler, regardless of the data
/// loader's request, like Python's `BatchSampler`. The sampler, not the
/// loader's options, determines the batch size.
///
/// The last batch of an epoch may be smaller; `drop_last` drops it (the
/// loader's `drop_last` must be off). `Base` is a sampler of indices, such as
/// `DistributedSampler`; the copy in this sampler shares the original's epoch.
template <typename Base>
class BatchSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws `c10::ValueError` if `batch_size` is 0.
  BatchSampler(Base base, size_t batch_size, bool drop_last)
      : base_(std::move(base)), batch_size_(batch_size), drop_last_(drop_last) {
    DDP_CHECK_VALUE(
        batch_size > 0, "BatchSampler: batch_size is 0, expected 1 or more");
  }

  /// Resets `Base`.
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    base_.reset(new_size);
  }

  /// Returns the next batch; the argument is ignored.
  std::optional<std::vector<size_t>> next(size_t /*batch_size*/ = 0) override {
    auto batch = base_.next(batch_size_);
    if (batch && drop_last_ && batch->size() < batch_size_) {
      return std::nullopt;
    }
    return batch;
  }

  /// This method and those below call `Base`'s methods; see `ShardedSampler`.
  void set_epoch(int64_t epoch) {
    base_.set_epoch(epoch);
  }
  /// The epoch.
  template <typename B = Base>
  auto epoch() const -> decltype(std::declval<const B&>().epoch()) {
    return base_.epoch();
  }
  /// Reports that the loop has used `count` more samples.
  template <typename B = Base>
  auto advance(size_t count) -> decltype(std::declval<B&>().advance(count)) {
    base_.advance(count);
  }
  /// States that the loop reports all samples, unless `drop_last` drops some.
  template <typename B = Base>
  auto keep_last_batch() -> decltype(std::declval<B&>().keep_last_batch(true)) {
    base_.keep_last_batch(!drop_last_);
  }
  /// The state, for a checkpoint.
  auto state_dict() const {
    return base_.state_dict();
  }
  /// Resumes from a state.
  template <typename State>
  void load_state_dict(const State& state) {
    base_.load_state_dict(state);
  }
  /// Checks a state, and returns a function that loads it.
  template <typename State, typename B = Base>
  auto plan_state_dict(const State& state)
      -> decltype(std::declval<B&>().plan_state_dict(state)) {
    return base_.plan_state_dict(state);
  }

  /// Saves `Base`.
  void save(torch::serialize::OutputArchive& archive) const override {
    base_.save(archive);
  }
  /// Loads `Base`.
  void load(torch::serialize::InputArchive& archive) override {
    base_.load(archive);
  }

 private:
  Base base_;
  size_t batch_size_;
  bool drop_last_;
};

} // namespace ddp
