#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>
#include <ddp/internal/share_forward.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace ddp {

/// In place of the rank that gets a result: every rank does.
inline constexpr int64_t kAllRanks = -1;

/// Returns this rank's share of `root`'s tensor.
///
/// `input` is of shape [n, ...] and of any dtype but quantized ones, dense, on
/// any device, with any strides; what the other ranks pass is ignored and may
/// be undefined. It is split along dimension 0 as by `tensor_split`: shares
/// differ by at most one row, the longer ones first, so 3 rows over 2 ranks are
/// 2 + 1, and ranks past the rows get none. A share is contiguous, on
/// `group.device()`, and memory of its own; but in a group of one it may share
/// the input's.
///
/// Collective. Before it is sent, the whole input is on root's device. Throws
/// `c10::ValueError` with the same words on all ranks if `root`'s input is
/// undefined, has no dimension or cannot be moved, if `root` is not a rank, or
/// if ranks call with different ones; the group stays of use.
///
/// Without gradients. Meant for a batch that one rank has; a sampler gives each
/// rank its own samples, and nothing is sent. Source: `scatter` of
/// torch.nn.parallel, which splits as `chunk` does (5 rows over 4 GPUs are 2 +
/// 2 + 1 there, and 2 + 1 + 1 + 1 here).
DDP_API at::Tensor scatter(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root = 0);

/// Returns the shares of all ranks, joined along dimension 0 in the order of
/// the ranks, on rank `destination`, and an undefined tensor on the others; or
/// on every rank, with `kAllRanks`.
///
/// Shares are of shape [n, ...], any n, also 0, and of any dtype, dense, on any
/// device, with any strides. They must agree in dtype and in all sizes but the
/// first. An undefined one counts for none; if all are, so is the result. The
/// result is contiguous, on `group.device()`, and memory of its own; but in a
/// group of one it may share the input's.
///
/// Collective. No rank but those that get it needs memory for the result.
/// Throws `c10::ValueError` with the same words on all ranks if shares do not
/// fit together, if one has no dimension or cannot be moved, if `destination`
/// is not a rank, or if ranks call with different ones; the group stays of use.
/// Without gradients. Source: `gather` of torch.nn.parallel, which makes a
/// vector of tensors without a dimension.
DDP_API at::Tensor gather(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination = 0);

/// Options of `parallel_forward`.
struct ParallelForwardOptions {
  /// The rank whose input is forwarded.
  TORCH_ARG(int64_t, root) = 0;

  /// The rank that gets the result, or `kAllRanks`. Unset: `root`.
  TORCH_ARG(std::optional<int64_t>, destination);

  /// Whether `root`'s input is moved to the group's device, if it is elsewhere;
  /// without, that is an error.
  TORCH_ARG(bool, move_input) = true;
};

namespace detail {
DDP_API at::Tensor parallel_forward(
    const ShareForward& forward,
    const at::Tensor& input,
    const ProcessGroup& group,
    const ParallelForwardOptions& options);
} // namespace detail

/// Forwards a batch that one rank has, each rank a share of it, without
/// gradients, and returns the joined output: Python's `DataParallel` for
/// inference, with a process to each device.
///
///     auto output = ddp::parallel_forward(net, input, group);
///
/// `net` is a module, a `shared_ptr` to one, a module holder, or what can be
/// called with a tensor; it takes shape [n, ...] and returns a tensor of shape
/// [m, ...]. Of a `DistributedDataParallel` the module inside runs. All ranks
/// pass their own, with equal parameters and buffers (`broadcast_module_state`,
/// `broadcast_buffers`) and in the same mode, usually `eval()`; none of it is
/// changed here. `input` and how it is split: see `scatter`. `net` is not run
/// where there are no rows, but on rank 0. The result: see `gather`.
///
/// Collective. What a rank finds wrong all throw, with its number, and the
/// group stays of use: `c10::ValueError` where `scatter` and `gather` do, where
/// the input is not on the group's device and may not be moved, and where all
/// parameters of a module are on another one; `c10::Error` with the first words
/// of what forward threw, once all ranks have run theirs.
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
