#pragma once

#include <ddp/reducer/buckets/bucket_assignment.h>
#include <ddp/reducer_options.h>

namespace ddp {

/// The buckets of the first backward pass, in the order of reduction. `indices`
/// selects from `tensors`, which are in the order of registration.
std::vector<BucketIndices> initial_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<size_t>& indices,
    const ReducerOptions& options);

/// The buckets of later backward passes. `order` contains indices in the order
/// of rank 0's gradients.
std::vector<BucketIndices> rebuilt_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<size_t>& order,
    const ReducerOptions& options);

/// The number of reductions after which buckets are rebuilt; `std::nullopt`
/// means never.
std::optional<int64_t> rebuilds_after(const ReducerOptions& options);

/// Throws `c10::ValueError` unless all caps are positive.
void check_caps(const ReducerOptions& options);

} // namespace ddp
