#pragma once

#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer/core/target_state.h>

namespace ddp::detail {

/// Checks whether a Reducer's parameters still belong to the Reducer's module.
class ModuleMembership final : public ReductionObserver {
 public:
  /// `parameters` must outlive this object; `current` and `owned` are as in
  /// `TargetState`.
  ModuleMembership(
      const std::vector<ParameterState>& parameters,
      std::function<NamedTensors()> current,
      std::optional<std::weak_ptr<torch::nn::Module>> owned);

  /// Whether the program has released the module.
  bool is_gone() const {
    return owned_ && owned_->expired();
  }

  /// Throws `c10::Error` if a parameter without a gradient, for example a
  /// frozen one, no longer belongs to the module: its layer was replaced, and
  /// the new parameter is not averaged.
  void on_computed(const Reduction& reduction) override;

  /// The module's parameters that have a gradient (`trained`) or require one,
  /// but have no Reducer, and are not among `known`.
  NamedTensors added(const std::vector<at::Tensor>& known, bool trained) const;

 private:
  const std::vector<ParameterState>& parameters_;
  std::function<NamedTensors()> current_;
  std::optional<std::weak_ptr<torch::nn::Module>> owned_;
  /// The parameters of the last search, and who held them in the last pass:
  /// fewer if the module no longer does.
  std::vector<size_t> checked_;
  size_t holders_ = 0;
};

} // namespace ddp::detail
