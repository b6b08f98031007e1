#pragma once

#include <ddp/reducer/buckets/parameter_state.h>
#include <ddp/reducer/core/managed_state.h>

namespace ddp::detail {

/// Whether a Reducer's parameters still belong to the module that it was given.
class ModuleMembership {
 public:
  /// `current` and `owned` as in `ManagedState`.
  ModuleMembership(
      std::function<NamedTensors()> current,
      std::optional<std::weak_ptr<torch::nn::Module>> owned);

  /// Whether the program has let go of the module.
  bool is_gone() const {
    return owned_ && owned_->expired();
  }

  /// A parameter that gets no gradient may be of a layer that was replaced:
  /// then the module has one that nobody averages. Throws `c10::Error` if
  /// `unused`, indices into `parameters`, has such a one.
  void check(
      const std::vector<ParameterState>& parameters,
      const std::vector<size_t>& unused);

  /// The module's parameters that have trained without a Reducer and are not
  /// `known`.
  NamedTensors added(const std::vector<at::Tensor>& known) const;

 private:
  std::function<NamedTensors()> current_;
  std::optional<std::weak_ptr<torch::nn::Module>> owned_;
  /// Those that were looked for last.
  std::vector<size_t> checked_;
};

} // namespace ddp::detail
