#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/bucket_assignment.h>
#include <ddp/process_group.h>

#include <vector>

namespace ddp {

/// Parameters whose gradients lie side by side in one flat tensor and are
/// reduced in one all-reduce.
struct Bucket {
  /// Parameters by index, in the order in which they lie in `flat`.
  BucketIndices indices;
  /// One-dimensional: the gradients back to back, without gaps. The layout
  /// decides in which order the backend adds the ranks' values, so it decides
  /// bits.
  at::Tensor flat;
  /// Each parameter's slice of `flat`, in the parameter's shape.
  std::vector<at::Tensor> views;
  /// How many gradients this backward still owes.
  size_t pending = 0;
  Work work;
};

/// A zeroed bucket for the given parameters, in memory from the backend where
/// it offers some (so that reducing needs no staging copy), else from ATen.
Bucket make_bucket(
    const std::vector<at::Tensor>& parameters,
    BucketIndices indices,
    const ProcessGroup& group);

} // namespace ddp
