#pragma once

#include <ddp/reducer/core/gradient_reduction.h>
#include <ddp/reducer/observers/partial_step.h>

namespace ddp::detail {

/// The optimizer that steps at the end of a Reducer's backward passes.
class StepInBackward final : public ReductionObserver {
 public:
  /// All references must outlive this object. `at_once` is whether a bucket's
  /// parameters may be stepped before other gradients are known, since no check
  /// can reject these gradients.
  StepInBackward(
      std::vector<ParameterState>& parameters,
      GradientReduction& reduction,
      bool at_once);
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;
  ~StepInBackward() override;

  /// Throws `c10::ValueError` if another optimizer is attached, if this one
  /// reads several parameters together, communicates, or has none of the
  /// parameters or another Reducer's, or if optimizers differ between ranks.
  void attach(torch::optim::Optimizer& optimizer, const ProcessGroup& group);

  /// The optimizer; null before `attach`.
  torch::optim::Optimizer* optimizer() const {
    return optimizer_;
  }

  void on_all_launched(const Reduction& reduction) override;
  void on_bucket_done(const Bucket& bucket) override;
  void on_grads_populated() override;
  void on_failed() override {
    step_.reset();
  }

 private:
  PartialStep& step();

  std::vector<ParameterState>& parameters_;
  GradientReduction& reduction_;
  bool at_once_;
  torch::optim::Optimizer* optimizer_ = nullptr;
  /// The step of this backward pass, from the first stepped bucket on.
  std::unique_ptr<PartialStep> step_;
  bool steps_buckets_ = false;
  bool has_inputs_ = true;
};

/// Whether a Reducer steps this optimizer in backward.
bool is_stepped_in_backward(const torch::optim::Optimizer& optimizer);

} // namespace ddp::detail
