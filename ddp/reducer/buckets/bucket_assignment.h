#pragma once

#include <ddp/comm_hook.h>

namespace ddp {

/// Assigns `tensors` to buckets of one dtype and device each.
///
/// Iterates over `order` (indices into `tensors`) and closes a bucket as soon
/// as it holds at least its limit in bytes, so that it may exceed it by one
/// tensor. The n-th bucket of a dtype and device takes the n-th limit, the last
/// limit repeats. Closed buckets are in the order of closing, then the
/// remaining ones. Source: compute_bucket_assignment_by_size of
/// torch.distributed, which every rank must follow for equal bits.
std::vector<BucketIndices> assign_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<int64_t>& limits,
    const std::vector<size_t>& order);

} // namespace ddp
