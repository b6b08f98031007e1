#pragma once

#include <ddp/checkpoint/checkpoint_manager.h>
#include <tests/support/catch.h>

namespace ddp::test {

/// A run with a tensor whose values are all equal to its step.
struct Run {
  explicit Run(
      const std::string& folder,
      const CheckpointManagerOptions& options = {},
      const ProcessGroup& group = {},
      int64_t size = 1000)
      : values(torch::zeros({size})),
        state(TrainingState().add("step", step).add("values", values)),
        checkpoints(folder, state, group, options) {}

  void save(int64_t new_step, std::optional<double> metric = std::nullopt) {
    step = new_step;
    values.fill_(new_step);
    checkpoints.save(step, metric);
  }

  bool is_at(int64_t expected) const {
    return step == expected &&
        torch::equal(values, torch::full_like(values, expected));
  }

  int64_t step = -1;
  torch::Tensor values;
  TrainingState state;
  CheckpointManager checkpoints;
};

inline CheckpointManagerOptions keeping(int64_t last, int64_t best = 0) {
  return CheckpointManagerOptions().keep_last(last).keep_best(best);
}

} // namespace ddp::test
