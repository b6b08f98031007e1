#pragma once

#include <ddp/comm_hook.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/arrival_streams.h>
#include <ddp/reducer/buckets/bucket_assignment.h>

namespace ddp {

/// Parameters whose gradients are adjacent in one flat tensor and are reduced
/// together.
struct Bucket {
  /// Parameters by index, in their order in the buffer.
  BucketIndices indices;
  /// The buffer and its slices. The slices are adjacent without gaps. This
  /// layout determines the backend's order of addition, and thus the exact
  /// bits.
  GradBucket content;
  /// The streams that filled the bucket in this backward pass.
  detail::ArrivalStreams streams;
  /// The number of gradients that are still pending in this backward pass.
  size_t pending = 0;
  /// The number of gradients that autograd accumulated in the slice, unscaled.
  size_t unscaled = 0;
  /// Whether the bucket is left out of this backward pass, on all ranks.
  bool skipped = false;
  /// The reduction in progress; null if no reduction is in progress.
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

/// Makes a zeroed bucket for the parameters with these indices. The backend
/// provides the memory if it can allocate tensors (which saves a staging copy);
/// otherwise ATen does.
Bucket make_bucket(
    const std::vector<at::Tensor>& parameters,
    const BucketIndices& indices,
    const ProcessGroup& group);

} // namespace ddp
