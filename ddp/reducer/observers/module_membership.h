#pragma once

#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer/core/target_state.h>

namespace ddp::detail {

/// Whether a Reducer's parameters still belong to the module that it was given.
class ModuleMembership final : public ReductionObserver {
 public:
  /// `parameters` must live as long; `current` and `owned` as in
  /// `TargetState`.
  ModuleMembership(
      const std::vector<ParameterState>& parameters,
      std::function<NamedTensors()> current,
      std::optional<std::weak_ptr<torch::nn::Module>> owned);

  /// Whether the program has released the module.
  bool is_gone() const {
    return owned_ && owned_->expired();
  }

  /// A parameter without a gradient may be of a layer that was replaced: then a
  /// parameter of the module is not averaged. Throws `c10::Error` if there is
  /// one.
  void on_computed(const Reduction& reduction) override;

  /// The module's parameters that have trained without a Reducer and are not
  /// `known`.
  NamedTensors added(const std::vector<at::Tensor>& known) const;

 private:
  const std::vector<ParameterState>& parameters_;
  std::function<NamedTensors()> current_;
  std::optional<std::weak_ptr<torch::nn::Module>> owned_;
  /// The parameters of the last search.
  std::vector<size_t> checked_;
};

} // namespace ddp::detail
