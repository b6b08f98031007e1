#pragma once

#include <ddp/internal/reducer_target.h>
#include <ddp/module_state.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// What a Reducer is attached to.
struct TargetState {
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

} // namespace ddp::detail
