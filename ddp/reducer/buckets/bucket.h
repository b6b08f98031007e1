#pragma once

#include <ddp/comm_hook.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/arrival_streams.h>
#include <ddp/reducer/buckets/bucket_assignment.h>

namespace ddp {

/// Parameters whose gradients lie side by side in one flat tensor and are
/// reduced together.
struct Bucket {
  /// Parameters by index, in the order in which they lie in the buffer.
  BucketIndices indices;
  /// The buffer and its slices. The layout, back to back without gaps, decides
  /// in which order the backend adds the ranks' values, so it decides bits.
  GradBucket content;
  /// What it has been filled on in this backward.
  detail::ArrivalStreams streams;
  /// How many gradients this backward still owes.
  size_t pending = 0;
  /// How many of them autograd added up in the slice, so that nothing scaled
  /// them.
  size_t unscaled = 0;
  /// Left out of this backward, on all ranks.
  bool skipped = false;
  /// The reduction that is under way; null if there is none.
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

/// Zeroed buckets for the given parameters, in memory from the backend where it
/// offers some (so that reducing needs no staging copy), else from ATen.
std::vector<Bucket> make_buckets(
    const std::vector<at::Tensor>& parameters,
    const std::vector<BucketIndices>& indices,
    const ProcessGroup& group);

} // namespace ddp
