#pragma once

#include <ddp/comm_hook.h>

namespace ddp {

/// Assigns `tensors` to buckets of one dtype and device each.
///
/// Iterates over `order` (indices into `tensors`) and closes a bucket as soon
/// as it holds at least its limit in bytes; it may exceed the limit by one
/// tensor. The n-th bucket of a dtype and device has the n-th limit; the last
/// limit repeats. Closed buckets are in the order of closing, then the
/// remaining ones. Source: compute_bucket_assignment_by_size of
/// torch.distributed, on which Python's bits depend.
std::vector<BucketIndices> assign_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<int64_t>& limits,
    const std::vector<size_t>& order);

} // namespace ddp
