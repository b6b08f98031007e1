#pragma once

#include <ddp/export.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace ddp {

class ProcessGroup;

/// How a learning rate follows the global batch.
enum class LearningRateScaling {
  kNone,
  /// In proportion (Goyal et al.: Accurate, large minibatch SGD, 2017).
  kLinear,
  /// By the square root of the ratio, as for Adam.
  kSquareRoot,
};

/// What is known of batch sizes, in samples. Every rank has to give the same.
struct BatchPlanOptions {
  /// Samples between two steps of the optimizer, over all ranks.
  TORCH_ARG(std::optional<int64_t>, global_batch) = std::nullopt;
  /// Samples in one forward of one rank: what has to fit into its memory.
  TORCH_ARG(std::optional<int64_t>, rank_batch) = std::nullopt;
  /// Backwards between two steps of the optimizer, all but the last in a
  /// `no_sync` guard.
  TORCH_ARG(std::optional<int64_t>, accumulation_steps) = std::nullopt;
  /// The global batch that the learning rate was found for.
  TORCH_ARG(std::optional<int64_t>, reference_batch) = std::nullopt;
  TORCH_ARG(LearningRateScaling, scaling) = LearningRateScaling::kLinear;
};

/// Batch sizes that agree: global = rank * ranks * accumulation_steps.
struct BatchPlan {
  int64_t global_batch = 0;
  int64_t rank_batch = 0;
  int64_t accumulation_steps = 1;
  /// What to multiply the learning rate by; 1 without a reference batch.
  double learning_rate_scale = 1;
};

/// Works out what `options` leave open, for the ranks of `group`; the number of
/// accumulation steps is 1 where it does not follow. A change of the number of
/// ranks then changes what was left open, and not what was said: with a global
/// batch the training stays the same. Throws `c10::ValueError` where the sizes
/// do not agree, with all of them and the nearest that do. Not collective.
DDP_API BatchPlan
plan_batches(const BatchPlanOptions& options, const ProcessGroup& group);

/// The same for `num_replicas` ranks.
DDP_API BatchPlan
plan_batches(const BatchPlanOptions& options, int64_t num_replicas);

} // namespace ddp
