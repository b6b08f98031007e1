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

/// Tensors with their names for messages, in the same order on all ranks.
struct DDP_API NamedTensors {
  /// Appends one tensor.
  void append(const std::string& name, const at::Tensor& tensor);
  void append(const NamedTensors& others); ///< Appends `others`.

  std::vector<std::string> names; ///< One per tensor.
  std::vector<at::Tensor> tensors; ///< One per name.
};

/// The parameters of a module in registration order, including frozen ones. A
/// parameter that is registered several times appears once.
DDP_API NamedTensors unique_parameters(const torch::nn::Module& module);

/// The buffers of a module in registration order, each once.
DDP_API NamedTensors unique_buffers(const torch::nn::Module& module);

/// The module's parameters, including frozen ones, and then its buffers.
DDP_API NamedTensors unique_state(const torch::nn::Module& module);

/// Broadcasts `root`'s values, in place; many small tensors share a few large
/// messages. Shapes and dtypes must agree across ranks. Autograd does not
/// record the change, so the backward pass of an earlier forward pass still
/// works. Collective.
DDP_API void broadcast_tensors(
    const std::vector<at::Tensor>& tensors,
    const ProcessGroup& group,
    int64_t root = 0);

/// Broadcasts rank 0's buffers, such as running statistics of batch-norm. Call
/// this function before evaluating or saving. Collective.
DDP_API void broadcast_buffers(
    torch::nn::Module& module,
    const ProcessGroup& group);

/// Broadcasts rank 0's parameters, including frozen ones, and buffers.
/// Collective.
DDP_API void broadcast_module_state(
    torch::nn::Module& module,
    const ProcessGroup& group);

/// The tensors that a check of a module includes in addition to its parameters;
/// equal on all ranks.
struct VerificationOptions {
  /// Whether the check includes the parameters' gradients.
  TORCH_ARG(bool, gradients) = false;

  /// Whether the check includes the module's buffers.
  TORCH_ARG(bool, buffers) = false;
};

/// Checks that all ranks have the same list: names, order, shapes, dtypes,
/// strides and `requires_grad` of the tensors, and the lines of `options`.
/// Throws `c10::ValueError` with the same text on every rank, which names the
/// rank that differs from rank 0, the tensor or option, and the difference.
/// Collective.
DDP_API void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group);

/// Calls `verify_same_values` for a module's parameters, then, if selected, for
/// its gradients and buffers, each in registration order. Collective.
DDP_API void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that all ranks have the same values, bit for bit: -0.0 differs from
/// 0.0, and a NaN equals a NaN with the same bits. The tensors may be of any
/// dtype, sparse or on a GPU. An undefined tensor, such as a missing gradient,
/// equals only another undefined tensor. Strides are ignored; a sparse tensor
/// is compared in its coalesced form.
///
/// Throws `c10::ValueError` with the same text on every rank. The text begins
/// with "the " and `what`, such as "gradients", and names the first tensor that
/// differs, the ranks that differ from the majority, and a few more tensors
/// that differ. If sets of equal ranks are equally large, the set with the
/// lowest rank counts as the majority. If the ranks' lists have different names
/// or lengths, the text names the first difference.
///
/// Collective. Each rank reads its tensors once, on one core, and copies GPU
/// tensors to the CPU one at a time. Gathers 8 bytes per rank if all values are
/// equal; otherwise, also gathers names, shapes and 8 bytes per tensor.
DDP_API void verify_same_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// Calls `verify_finite` below for a module's parameters and, if selected, its
/// gradients and buffers. Collective.
DDP_API void verify_finite(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options = {});

/// Checks that no rank has a NaN or an infinity in its tensors. Tensors may be
/// of any dtype, sparse or on a GPU; integers and undefined tensors count as
/// finite. The ranks' lists may differ.
///
/// Throws `c10::ValueError` with the same text on every rank. The text begins
/// with "the " and `what`, such as "gradients", and contains the ranks and, for
/// a few tensors, the numbers of NaN and infinite elements (a complex element
/// may be both).
///
/// Collective. Each rank reads its tensors once, in place (except sparse,
/// float8 and non-contiguous tensors, which are copied), and waits for a GPU at
/// each tensor. Reduces 8 bytes if all values are finite; otherwise, also
/// gathers a few lines per rank.
DDP_API void verify_finite(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// A 64-bit hash (XXH3) of a module's parameters: names, dtypes, shapes,
/// strides, `requires_grad`, and bytes. Equal on all machines with the same
/// byte order. Not collective.
DDP_API uint64_t parameter_hash(const torch::nn::Module& module);

/// The base class of all wrappers of a module. Parameter names ignore wrappers,
/// so checkpoints of a wrapper and of the plain module have the same names.
struct DDP_API WrappedModule {
  virtual ~WrappedModule() = default;

  /// The wrapped module, which may also be a wrapper.
  virtual torch::nn::Module& wrapped() = 0;
  virtual const torch::nn::Module& wrapped() const = 0; ///< As above.
};

} // namespace ddp
