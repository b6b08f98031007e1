#pragma once

#include <ddp/comm_hook.h>

namespace ddp {

/// Assigns `tensors` to buckets, each of one dtype and device.
///
/// Iterates over `order` (indices into `tensors`) and closes a bucket as soon
/// as it holds at least its limit in bytes; a bucket may exceed its limit by
/// one tensor. The n-th bucket of a dtype and device has the n-th limit; the
/// last limit repeats. The result contains closed buckets in the order of
/// closing, followed by the remaining buckets. Source:
/// compute_bucket_assignment_by_size of torch.distributed, which determines the
/// exact bits of Python's results.
std::vector<BucketIndices> assign_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<int64_t>& limits,
    const std::vector<size_t>& order);

} // namespace ddp
