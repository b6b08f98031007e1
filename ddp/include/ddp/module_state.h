#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
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

/// What a check of a module looks at beside its parameters; the same on all
/// ranks.
struct VerificationOptions {
  /// Whether it looks at the parameters' gradients too.
  TORCH_ARG(bool, gradients) = false;

  /// Whether it looks at the module's buffers too.
  TORCH_ARG(bool, buffers) = false;
};

/// Checks that all ranks hold the same list: names, order, shapes, dtypes and
/// strides of the tensors, which of them require gradients, and the lines of
/// `options`. Throws `c10::ValueError` with the same words on every rank: which
/// rank differs from rank 0, in which tensor or option, and how. Collective.
DDP_API void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group);

/// Checks that all ranks hold the same values, bit for bit, in a module's
/// parameters, and in its gradients and buffers if asked for. The parameters
/// are compared first, then gradients, then buffers, each in registration
/// order. Otherwise as `verify_same_values`. Collective.
DDP_API void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that all ranks hold the same values, bit for bit: -0.0 is not 0.0, a
/// NaN is itself. The tensors may be of any dtype, sparse or on a GPU; an
/// undefined one, such as a gradient that is not there, equals an undefined one
/// only. Strides do not matter, and a sparse tensor is compared coalesced.
///
/// Throws `c10::ValueError` with the same words on every rank. It begins with
/// `what`, a noun such as "gradients", and names the first tensor that differs,
/// the ranks that hold something else than most do (than the group with the
/// lowest rank, if groups are equally large), and a few of the other tensors
/// that differ; or, if the ranks' lists have different names or lengths, where
/// they part.
///
/// Collective. Each rank reads its tensors once, on one core, and a GPU's are
/// copied to the CPU one by one. 8 bytes per rank are gathered if all is equal;
/// only otherwise names, shapes and 8 bytes per tensor.
DDP_API void verify_same_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// Checks that no rank has a NaN or an infinity in a module's parameters, or in
/// its gradients and buffers if asked for. Otherwise as for a list. Collective.
DDP_API void verify_finite(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that no rank has a NaN or an infinity in its tensors. They may be of
/// any dtype, sparse or on a GPU; integers and undefined tensors are finite.
/// The lists of the ranks need not be alike.
///
/// Throws `c10::ValueError` with the same words on every rank. It begins with
/// `what`, a noun such as "gradients", and says on which ranks, and for a few
/// tensors how many elements are NaN and how many infinite (a complex element
/// may be both).
///
/// Collective. Each rank reads its tensors once, where they are and without
/// memory of their size (but for sparse, float8 and non-contiguous ones; a GPU
/// is waited for at each). 8 bytes are reduced if all is finite; only otherwise
/// a few lines per rank are gathered.
DDP_API void verify_finite(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// A 64-bit hash (XXH3) of the names, shapes and bytes of a module's
/// parameters, equal on any machine of the same byte order.
DDP_API uint64_t parameter_hash(const torch::nn::Module& module);

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
