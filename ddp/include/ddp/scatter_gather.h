#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>
#include <ddp/process_group.h>

#include <cstdint>

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
/// `c10::ValueError` with the same words on all ranks where `root`'s input is
/// undefined, has no dimension or cannot be moved, where `root` is not a rank,
/// or where ranks call with different ones; the group stays of use.
///
/// Without gradients. Meant for a batch that one rank has; a sampler gives each
/// rank its own samples, and nothing is sent. Source: `scatter` of
/// torch.nn.parallel, which splits as `chunk` does (5 rows over 4 GPUs are
/// 2 + 2 + 1 there, and 2 + 1 + 1 + 1 here).
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
/// Throws `c10::ValueError` with the same words on all ranks where shares do
/// not fit together, where one has no dimension or cannot be moved, where
/// `destination` is not a rank, or where ranks call with different ones; the
/// group stays of use. Without gradients. Source: `gather` of
/// torch.nn.parallel, which makes a vector of tensors without a dimension.
DDP_API at::Tensor gather(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination = 0);

} // namespace ddp
