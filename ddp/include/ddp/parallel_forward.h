#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <ddp/internal/share_forward.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace ddp {

/// The `destination` with which every rank gets the result.
inline constexpr int64_t kAllRanks = -1;

/// Returns this rank's share of `root`'s tensor.
///
/// `input` is a dense tensor of shape [n, ...], of any dtype except quantized
/// ones, on any device, with any strides. The other ranks' `input` is ignored
/// and may be undefined. The tensor is split along dimension 0 as by
/// `tensor_split`: shares differ by at most one row, and longer shares are
/// first. Two ranks thus split 3 rows as 2 + 1, and ranks after the last row
/// get no rows. A share is contiguous, on `group.device()`, in separate memory;
/// in a group of one, it may alias the input.
///
/// Collective. `root`'s device must have memory for the whole input. Throws
/// `c10::ValueError` with the same text on all ranks if `root`'s input is
/// undefined or 0-dim, or cannot be moved, if `root` is not a rank, or if ranks
/// pass different roots. The group can still be used.
///
/// Not differentiable: autograd does not record this function. Use this
/// function for a batch that only one rank has; samplers give ranks their
/// samples without communication. Source: `scatter` of torch.nn.parallel, which
/// splits as `chunk` does (5 rows over 4 GPUs become 2 + 2 + 1; this function
/// splits them into 2 + 1 + 1 + 1).
DDP_API at::Tensor scatter(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root = 0);

/// Returns the shares of all ranks, concatenated along dimension 0 in rank
/// order, on rank `destination` (with `kAllRanks`, on every rank). Other ranks
/// get an undefined tensor.
///
/// Shares are dense tensors of shape [n, ...], with any n >= 0, of any dtype
/// except quantized ones, on any device, with any strides. Dtypes and all sizes
/// but the first must agree. An undefined share counts as empty; if all are
/// undefined, so is the result. The result is contiguous, on `group.device()`,
/// in separate memory; in a group of one, it may alias `share`.
///
/// Collective. Only ranks that get the result need memory for the result.
/// Throws `c10::ValueError` with the same text on all ranks if shares do not
/// fit together, if a share is 0-dim or cannot be moved, if `destination` is
/// not a rank, or if ranks pass different destinations. The group can still be
/// used. Not differentiable: autograd does not record this function. Source:
/// `gather` of torch.nn.parallel, which joins 0-dim tensors into a vector.
DDP_API at::Tensor gather(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination = 0);

/// Options of `parallel_forward`.
struct ParallelForwardOptions {
  /// The rank whose input is used.
  TORCH_ARG(int64_t, root) = 0;

  /// The rank that gets the result, or `kAllRanks`. Unset: `root`.
  TORCH_ARG(std::optional<int64_t>, destination);

  /// Whether `root`'s input is moved to the group's device; if false, an input
  /// on another device is an error.
  TORCH_ARG(bool, move_input) = true;
};

namespace detail {
DDP_API at::Tensor parallel_forward(
    const ShareForward& forward,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options);
} // namespace detail

/// Splits one rank's batch, runs each rank's forward pass on its share without
/// gradients, and returns the joined output: Python's `DataParallel` for
/// inference, with one process per device.
///
///     auto output = ddp::parallel_forward(net, input, group);
///
/// `net` is a module, a `shared_ptr` to one, a module holder, or a callable
/// that takes a tensor. `net` takes a tensor of shape [n, ...] and returns a
/// tensor of shape [m, ...]. For a `DistributedDataParallel`, the wrapped
/// module runs. The ranks' modules must have equal parameters and buffers
/// (`broadcast_module_state`, `broadcast_buffers`) and be in the same mode,
/// usually `eval()`; the call does not change them. `scatter` describes `input`
/// and the split; `gather` describes the result. If `input` has no rows, `net`
/// runs on rank 0 only.
///
/// Collective. If a rank finds an error, all ranks throw this error, with that
/// rank's number, and the group can still be used. Ranks throw
/// `c10::ValueError` as `scatter` and `gather` do, if the input is not on the
/// group's device and may not be moved, or if all parameters of a module are on
/// another device. If a forward pass throws, all ranks throw `c10::Error` with
/// the beginning of its message, after each rank has run its pass.
///
/// Source: torch.nn.DataParallel's forward.
template <typename Net>
at::Tensor parallel_forward(
    Net&& net,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options = {}) {
  return detail::parallel_forward(
      detail::share_forward(net), input, group, options);
}

} // namespace ddp
