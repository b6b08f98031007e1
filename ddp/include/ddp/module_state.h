#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>
#include <ddp/process_group.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Tensors with the names that messages use, in the same order on all ranks.
struct DDP_API NamedTensors {
  void append(const std::string& name, const at::Tensor& tensor);
  void append(const NamedTensors& others);

  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

/// The parameters of a module in registration order, each once however often it
/// is registered; frozen ones too.
DDP_API NamedTensors unique_parameters(const torch::nn::Module& module);

/// The buffers of a module in registration order, each once.
DDP_API NamedTensors unique_buffers(const torch::nn::Module& module);

/// Its parameters, frozen ones too, and then its buffers.
DDP_API NamedTensors unique_state(const torch::nn::Module& module);

/// Gives every rank `root`'s values, in place, a few large messages for many
/// small tensors. Shapes and dtypes must agree over ranks. Autograd does not
/// see the change: a forward before it may still be differentiated after it.
/// Collective.
DDP_API void broadcast_tensors(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group,
    int64_t root = 0);

/// Gives every rank rank 0's buffers: the running statistics of batch-norm,
/// before evaluating or saving. Collective.
DDP_API void broadcast_buffers(
    torch::nn::Module& module,
    const ProcessGroup& group);

/// Gives every rank rank 0's parameters, frozen ones too, and buffers.
/// Collective.
DDP_API void broadcast_module_state(
    torch::nn::Module& module,
    const ProcessGroup& group);

/// What every wrapper of a module derives from, whatever the type it wraps, so
/// that code which names parameters can look through it: a checkpoint of a
/// wrapper and of the plain module have the same names.
struct DDP_API WrappedModule {
  virtual ~WrappedModule() = default;

  /// The module inside, which may be a wrapper again.
  virtual torch::nn::Module& wrapped() = 0;
  virtual const torch::nn::Module& wrapped() const = 0;
};

} // namespace ddp
