#pragma once

#include <ddp/export.h>
#include <ddp/module_state.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <string>

namespace ddp {

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
/// lowest rank, where groups are equally large), and a few of the other tensors
/// that differ; or, where the ranks' lists have different names or lengths,
/// where they part.
///
/// Collective. Each rank reads its tensors once, on one core, and a GPU's are
/// copied to the CPU one by one. 8 bytes per rank are gathered where all is
/// equal; only otherwise names, shapes and 8 bytes per tensor.
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
/// is waited for at each). 8 bytes are reduced where all is finite; only
/// otherwise a few lines per rank are gathered.
DDP_API void verify_finite(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

/// A 64-bit hash (XXH3) of the names, shapes and bytes of a module's
/// parameters, equal on any machine of the same byte order.
DDP_API uint64_t parameter_hash(const torch::nn::Module& module);

} // namespace ddp
