#pragma once

#include <ddp/module_state.h>
#include <ddp/reducer_options.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace ddp::detail {

/// What a Reducer is attached to.
struct ManagedState {
  /// All parameters but the ignored, each once, in the order of registration;
  /// frozen ones too.
  NamedTensors parameters;
  /// The ignored ones.
  std::vector<at::Tensor> ignored;
  /// For each parameter, whether its gradient is sparse.
  std::vector<bool> sparse;
  /// The buffers there are now, but the ignored. Collected anew each time,
  /// since a module may replace them.
  std::function<NamedTensors()> buffers;
  /// The module's parameters there are now; null for a list of tensors.
  std::function<NamedTensors()> current;
  /// Where it is a `torch::nn::Module` that the program owns by pointers.
  std::optional<std::weak_ptr<torch::nn::Module>> owned;
};

/// Throw `c10::ValueError` where options name what is not there, or where a
/// tensor of a list is not a leaf that requires a gradient.
ManagedState managed_state(
    const std::shared_ptr<torch::nn::Module>& module,
    const ReducerOptions& options);
ManagedState managed_state(
    const torch::nn::Module& module,
    const ReducerOptions& options);
ManagedState managed_state(
    const torch::jit::Module& module,
    const ReducerOptions& options);
ManagedState managed_state(
    const NamedTensors& parameters,
    const ReducerOptions& options);

} // namespace ddp::detail
