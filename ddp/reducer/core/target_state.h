#pragma once

#include <ddp/internal/reducer_target.h>
#include <ddp/module_state.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// The target of a Reducer.
struct TargetState {
  /// All parameters except ignored ones, each once, in the order of
  /// registration, including frozen ones.
  NamedTensors parameters;
  /// The ignored parameters.
  std::vector<at::Tensor> ignored;
  /// For each parameter, whether its gradient is sparse.
  std::vector<bool> sparse;
  /// Returns the current buffers, except ignored ones. The buffers are
  /// collected at each call, since a module may replace them.
  std::function<NamedTensors()> buffers;
  /// Returns the module's current parameters; null for a list of tensors.
  std::function<NamedTensors()> current;
  /// The `torch::nn::Module`, if the program owns the module through pointers.
  std::optional<std::weak_ptr<torch::nn::Module>> owned;
};

} // namespace ddp::detail
