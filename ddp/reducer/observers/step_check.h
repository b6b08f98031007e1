#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// A Reducer's checks across ranks in its backward passes. The checks usually
/// cost one small message, which is sent with the gradients.
class StepCheck final : public ReductionObserver {
 public:
  /// Compares `parameters` every `divergence_every` steps (0: never), and, if
  /// `finite`, checks gradients for NaN and infinity.
  StepCheck(
      NamedTensors parameters,
      const ProcessGroup& group,
      int64_t divergence_every,
      bool finite);

  /// Whether any check is on.
  bool is_on() const {
    return finite_ || divergence_every_ > 0;
  }

  bool watches_parameters() const override {
    return finite_;
  }
  void on_own_gradient(
      const ParameterState& parameter,
      const at::Tensor& gradient) override;

  /// Reports the findings to the other ranks. Compares parameters only if all
  /// ranks participate, since ranks without inputs have different parameters.
  /// Collective.
  void on_all_launched(const Reduction& reduction) override;

  /// Throws `c10::ValueError` on all ranks if any rank has findings. Collective
  /// if any rank has findings.
  void on_reduced() override;
  /// Forgets the pass, after which a Reducer of one rank remains usable.
  void on_failed() override;

 private:
  NamedTensors parameters_;
  ProcessGroup group_;
  int64_t divergence_every_;
  bool finite_;
  NamedTensors not_finite_;
  /// Whether a value is not finite, and a checksum and its complement, whose
  /// maxima across ranks show whether all checksums are equal.
  at::Tensor message_;
  Work work_;
};

} // namespace ddp::detail
