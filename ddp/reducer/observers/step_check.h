#pragma once

#include <ddp/module_state.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// The checks over ranks that a Reducer makes in its backwards. In the common
/// case they cost one small message, which travels beside the gradients.
class StepCheck {
 public:
  /// Compares `parameters` every `divergence_every` steps (0: never), and looks
  /// for NaN and infinity in gradients where `finite`.
  StepCheck(NamedTensors parameters, int64_t divergence_every, bool finite);

  /// Whether it does anything.
  bool is_on() const {
    return finite_ || divergence_every_ > 0;
  }

  /// Looks at a gradient of this rank's own, before it is averaged.
  void look_at(const std::string& name, const at::Tensor& gradient);

  /// Tells the other ranks what was found in `step`. Compares only where the
  /// parameters should be equal, `comparable`. Collective.
  void start(int64_t step, const ProcessGroup& group, bool comparable);

  /// Throws `c10::ValueError` on all ranks where there was something.
  /// Collective in that case.
  void finish(const ProcessGroup& group);

 private:
  NamedTensors parameters_;
  int64_t divergence_every_;
  bool finite_;
  NamedTensors not_finite_;
  /// Whether something is not finite, and a digest and its complement: their
  /// maxima over ranks tell whether the digests are equal.
  at::Tensor message_;
  Work work_;
};

} // namespace ddp::detail
