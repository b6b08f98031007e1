#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// The checks over ranks that a Reducer makes in its backwards. In the common
/// case they cost one small message, which travels beside the gradients.
class StepCheck final : public ReductionObserver {
 public:
  /// Compares `parameters` every `divergence_every` steps (0: never), and looks
  /// for NaN and infinity in gradients where `finite`.
  StepCheck(
      NamedTensors parameters,
      const ProcessGroup& group,
      int64_t divergence_every,
      bool finite);

  /// Whether it does anything.
  bool is_on() const {
    return finite_ || divergence_every_ > 0;
  }

  bool watches_parameters() const override {
    return finite_;
  }
  void on_own_gradient(
      const ParameterState& parameter,
      const at::Tensor& gradient) override;

  /// Tells the other ranks what was found. Compares only if all ranks take
  /// part: those that do not step any more have parameters of their own.
  /// Collective.
  void on_all_launched(const Reduction& reduction) override;

  bool ends_with_collectives() const override {
    return is_on();
  }
  /// Throws `c10::ValueError` on all ranks if there was something. Collective
  /// in that case.
  void on_reduced() override;

 private:
  NamedTensors parameters_;
  ProcessGroup group_;
  int64_t divergence_every_;
  bool finite_;
  NamedTensors not_finite_;
  /// Whether something is not finite, and a digest and its complement: their
  /// maxima over ranks tell whether the digests are equal.
  at::Tensor message_;
  Work work_;
};

} // namespace ddp::detail
