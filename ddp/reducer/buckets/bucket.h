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
  /// The buffer and its slices. The layout, back to back without gaps,
  /// determines the backend's order of addition, and thus the bits.
  GradBucket content;
  /// The streams that filled it in this backward.
  detail::ArrivalStreams streams;
  /// The number of gradients still pending in this backward.
  size_t pending = 0;
  /// The number of gradients that autograd accumulated in the slice, unscaled.
  size_t unscaled = 0;
  /// Whether the bucket is left out of this backward, on all ranks.
  bool skipped = false;
  /// The reduction in progress; null if there is none.
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

/// Zeroed buckets for the given parameters, in memory from the backend if it
/// offers any (which saves a staging copy), else from ATen.
std::vector<Bucket> make_buckets(
    const std::vector<at::Tensor>& parameters,
    const std::vector<BucketIndices>& indices,
    const ProcessGroup& group);

} // namespace ddp
