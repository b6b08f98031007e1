#pragma once

#include <ddp/process_group.h>
#include <ddp/reducer/observers/partial_step.h>

namespace ddp::detail {

/// The optimizer that steps at the end of a Reducer's backwards.
class StepInBackward {
 public:
  StepInBackward() = default;
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;
  ~StepInBackward();

  /// Throws `c10::ValueError` where the optimizer looks at more than one
  /// parameter at once, communicates, or has none of `parameters`, and where it
  /// differs between ranks.
  void attach(
      torch::optim::Optimizer& optimizer,
      const std::vector<at::Tensor>& parameters,
      const ProcessGroup& group);

  /// Null where there is none.
  torch::optim::Optimizer* optimizer() const {
    return optimizer_;
  }

  /// The step of one backward; null where there is no optimizer.
  std::unique_ptr<PartialStep> begin() const;

 private:
  torch::optim::Optimizer* optimizer_ = nullptr;
};

/// Throws `c10::Error` where a Reducer steps this optimizer in backward:
/// `operation` would come too late.
void check_not_stepped_in_backward(
    const torch::optim::Optimizer& optimizer,
    const char* operation);

} // namespace ddp::detail
