#pragma once

#include <tests/support/catch.h>

#include <ddp/ddp.h>

namespace ddp::test {

/// A training run whose values all equal the number of its step.
struct SteppedTraining {
  explicit SteppedTraining(int64_t size = 1000)
      : weights(torch::zeros({size})),
        moments(torch::zeros({size}, torch::kDouble)) {
    state.add("step", step).add("weights", weights).add("moments", moments);
  }

  void set(int64_t new_step) {
    step = new_step;
    weights.fill_(new_step);
    moments.fill_(new_step);
  }

  int64_t step = -1;
  torch::Tensor weights, moments;
  TrainingState state;
};

/// The step in a file of this training run; requires that all values are of
/// this step.
inline int64_t step_of(const std::string& path) {
  const auto content = read_checkpoint_file(path).toGenericDict();
  const auto step = content.at("step").toInt();
  INFO(path << " is of step " << step);
  for (const auto* name : {"weights", "moments"}) {
    const auto tensor = content.at(name).toTensor();
    REQUIRE(tensor.numel() > 0);
    REQUIRE(tensor.eq(step).all().item<bool>());
  }
  return step;
}

/// The newest complete step that another run finds in a manager's folder, where
/// "latest" must also be complete.
inline int64_t newest_step_in(const std::string& folder) {
  SteppedTraining resumed;
  CheckpointManager checkpoints(folder, resumed.state);
  const auto found = checkpoints.load();
  REQUIRE(found);
  REQUIRE(found->skipped.empty());
  REQUIRE(found->step == resumed.step);
  REQUIRE(step_of(found->path) == found->step);
  REQUIRE(step_of(folder + "/latest") <= found->step);
  return found->step;
}

} // namespace ddp::test
