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

/// Tensors with the names for messages, in the same order on all ranks.
struct DDP_API NamedTensors {
  /// Adds one tensor.
  void append(const std::string& name, const at::Tensor& tensor);
  void append(const NamedTensors& others); ///< Adds all of these.

  std::vector<std::string> names; ///< As many as `tensors`.
  std::vector<at::Tensor> tensors; ///< As many as `names`.
};

/// The parameters of a module in registration order, including frozen ones. A
/// parameter that is registered several times appears once.
DDP_API NamedTensors unique_parameters(const torch::nn::Module& module);

/// The buffers of a module in registration order, each once.
DDP_API NamedTensors unique_buffers(const torch::nn::Module& module);

/// Its parameters, including frozen ones, and then its buffers.
DDP_API NamedTensors unique_state(const torch::nn::Module& module);

/// Gives every rank `root`'s values, in place, with a few large messages for
/// many small tensors. Shapes and dtypes must agree over ranks. Autograd does
/// not see the change: an earlier forward may still be differentiated later.
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

/// Gives every rank rank 0's parameters, including frozen ones, and buffers.
/// Collective.
DDP_API void broadcast_module_state(
    torch::nn::Module& module,
    const ProcessGroup& group);

/// The tensors that a check of a module includes beside its parameters; the
/// same on all ranks.
struct VerificationOptions {
  /// Whether it includes the parameters' gradients.
  TORCH_ARG(bool, gradients) = false;

  /// Whether it includes the module's buffers.
  TORCH_ARG(bool, buffers) = false;
};

/// Checks that all ranks hold the same list: names, order, shapes, dtypes and
/// strides of the tensors, which of them require gradients, and the lines of
/// `options`. Throws `c10::ValueError` with the same text on every rank: which
/// rank differs from rank 0, in which tensor or option, and how. Collective.
DDP_API void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group);

/// Checks that all ranks hold the same values, bit for bit, in a module's
/// parameters, and if selected in its gradients and buffers. Compares
/// parameters first, then gradients, then buffers, each in registration order.
/// Otherwise as `verify_same_values`. Collective.
DDP_API void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that all ranks hold the same values, bit for bit: -0.0 differs from
/// 0.0, and a NaN equals itself. The tensors may be of any dtype, sparse or on
/// a GPU. An undefined one, such as a missing gradient, equals an undefined one
/// only. Strides do not matter, and a sparse tensor is compared coalesced.
///
/// Throws `c10::ValueError` with the same text on every rank. It begins with
/// `what`, a noun such as "gradients", and names the first tensor that differs,
/// the ranks that differ from the majority (or from the group with the lowest
/// rank, if groups are equally large), and a few of the other tensors that
/// differ. If the ranks' lists have different names or lengths, it names the
/// first difference.
///
/// Collective. Each rank reads its tensors once, on one core, and copies a
/// GPU's one by one to the CPU. Gathers 8 bytes per rank if all are equal;
/// otherwise also names, shapes and 8 bytes per tensor.
DDP_API void verify_same_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// Checks that no rank has a NaN or an infinity in a module's parameters, or,
/// if selected, gradients and buffers. Otherwise as for a list. Collective.
DDP_API void verify_finite(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that no rank has a NaN or an infinity in its tensors. They may be of
/// any dtype, sparse or on a GPU; integers and undefined tensors are finite.
/// The lists of the ranks may differ.
///
/// Throws `c10::ValueError` with the same text on every rank. It begins with
/// `what`, a noun such as "gradients", and gives the ranks, and for a few
/// tensors the numbers of elements that are NaN and infinite (a complex element
/// may be both).
///
/// Collective. Each rank reads its tensors once, in place, without memory of
/// their size (except for sparse, float8 and non-contiguous ones), and waits
/// for a GPU at each. Reduces 8 bytes if all are finite; otherwise also gathers
/// a few lines per rank.
DDP_API void verify_finite(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// A 64-bit hash (XXH3) of the names, shapes and bytes of a module's
/// parameters, equal on any machine of the same byte order. Not collective.
DDP_API uint64_t parameter_hash(const torch::nn::Module& module);

/// The base of all wrappers of a module, of any type, so that code which names
/// parameters can look through it: checkpoints of a wrapper and of the plain
/// module have the same names.
struct DDP_API WrappedModule {
  virtual ~WrappedModule() = default;

  /// The module inside, which may also be a wrapper.
  virtual torch::nn::Module& wrapped() = 0;
  virtual const torch::nn::Module& wrapped() const = 0; ///< Likewise.
};

} // namespace ddp
