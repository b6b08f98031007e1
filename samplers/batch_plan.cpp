#include <ddp/samplers/batch_sampler.h>

#include <ddp/internal/check.h>
#include <ddp/process_group.h>

#include <cmath>

namespace ddp {
namespace {

// The product of three such numbers still fits an int64.
constexpr int64_t kMost = int64_t(1) << 20;

void check_positive(
    const char* name,
    const std::optional<int64_t>& value,
    int64_t most = kMost) {
  DDP_CHECK_VALUE(
      !value || (*value > 0 && *value <= most),
      "plan_batches: {} is {}, expected 1 to {}",
      name,
      value.value_or(0),
      most);
}

/// `total` divided by `part`; throws if there is a remainder.
int64_t quotient(
    int64_t total,
    int64_t part,
    const std::string& parts,
    const char* what) {
  const auto below = total / part * part;
  DDP_CHECK_VALUE(
      total % part == 0,
      "plan_batches: a global batch of {} cannot be divided evenly by {} to "
      "give a {}; use {}{}",
      total,
      parts,
      what,
      below > 0 ? std::to_string(below) + " or " : "",
      below + part);
  return total / part;
}

std::string times(int64_t a, const char* what, int64_t b, const char* other) {
  return c10::str(a, " ", what, " x ", b, " ", other, " = ", a * b);
}

double scale_of(const BatchPlanOptions& options, int64_t global_batch) {
  if (!options.reference_batch() ||
      options.scaling() == LearningRateScaling::kNone) {
    return 1;
  }
  const double ratio = static_cast<double>(global_batch) /
      static_cast<double>(*options.reference_batch());
  return options.scaling() == LearningRateScaling::kLinear ? ratio
                                                           : std::sqrt(ratio);
}

} // namespace

BatchPlan plan_batches(
    const BatchPlanOptions& options,
    const ProcessGroup& group) {
  return plan_batches(options, group.size());
}

BatchPlan plan_batches(const BatchPlanOptions& options, int64_t num_replicas) {
  const auto& global = options.global_batch();
  const auto& rank = options.rank_batch();
  const auto& steps = options.accumulation_steps();
  check_positive("global_batch", global, kMost * kMost);
  check_positive("rank_batch", rank);
  check_positive("accumulation_steps", steps);
  check_positive("reference_batch", options.reference_batch(), kMost * kMost);
  DDP_CHECK_VALUE(
      num_replicas > 0 && num_replicas <= kMost,
      "plan_batches: num_replicas is {}, expected 1 to {}",
      num_replicas,
      kMost);
  DDP_CHECK_VALUE(
      global || rank, "plan_batches: set global_batch, rank_batch, or both");
  BatchPlan plan;
  if (!rank) {
    plan.accumulation_steps = steps.value_or(1);
    plan.rank_batch = quotient(
        *global,
        num_replicas * plan.accumulation_steps,
        times(
            num_replicas,
            "ranks",
            plan.accumulation_steps,
            "accumulation steps"),
        "batch for each rank");
  } else {
    plan.rank_batch = *rank;
    plan.accumulation_steps = steps ? *steps
        : global                    ? quotient(
                       *global,
                       num_replicas * *rank,
                       times(num_replicas, "ranks", *rank, "samples"),
                       "number of accumulation steps")
                 : 1;
  }
  plan.global_batch = plan.rank_batch * num_replicas * plan.accumulation_steps;
  DDP_CHECK_VALUE(
      !global || *global == plan.global_batch,
      "plan_batches: global_batch is {}, but {} samples x {} ranks x {} "
      "accumulation steps = {}: use {}, or leave global_batch, rank_batch or "
      "accumulation_steps unset",
      global.value_or(0),
      plan.rank_batch,
      num_replicas,
      plan.accumulation_steps,
      plan.global_batch,
      plan.global_batch);
  plan.learning_rate_scale = scale_of(options, plan.global_batch);
  return plan;
}

} // namespace ddp
