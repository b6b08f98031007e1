#include <ddp/reducer/observers/capture_check.h>

#include <ddp/backends/capture.h>
#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/conflicts.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

/// Whether the host takes part in the group's collectives on a GPU.
bool is_by_host(const ProcessGroup& group, c10::Device device) {
  if (device.is_cpu()) {
    return false;
  }
  const auto name = group.c10d()->getBackend(device.type())->getBackendName();
  return name == "gloo" || name == "mpi";
}

} // namespace

void CaptureCheck::on_begin(const Reduction& reduction) {
  const auto& buckets = buckets_.all();
  capturing_ =
      std::any_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) {
        return backends::is_capturing(bucket.content.buffer.device());
      });
  if (!capturing_) {
    return;
  }
  const bool by_host =
      std::any_of(buckets.begin(), buckets.end(), [&](const Bucket& bucket) {
        return is_by_host(group_, bucket.content.buffer.device());
      });
  const auto settles_after =
      std::max(rebuild_.step().value_or(1), compared_steps_);
  DDP_CHECK(
      reduction.step > settles_after,
      "capturing a CUDA graph: this is backward pass {}, but up to backward "
      "pass {}, the host determines the buckets and compares the ranks. Run {} "
      "or more backward passes before capturing",
      reduction.step,
      settles_after,
      settles_after);
  for (const auto& [other, in_use] :
       {std::pair(Feature::kHostBackend, by_host),
        std::pair(Feature::kStepChecks, checks_steps_),
        std::pair(
            Feature::kStepInBackward, step_in_backward_.optimizer() != nullptr),
        std::pair(Feature::kJoin, reduction.joined),
        std::pair(Feature::kSparseGradients, sparse_.any_trainable())}) {
    check_no_conflict(Feature::kCapture, other, in_use);
  }
}

void CaptureCheck::on_computed(const Reduction& reduction) {
  if (!capturing_ || reduction.unused.empty()) {
    return;
  }
  std::string names;
  for (const size_t index : reduction.unused) {
    names += (names.empty() ? "" : ", ") + parameters_[index].name();
  }
  DDP_THROW(
      Error,
      "capturing a CUDA graph: backward did not reach {}. A captured step "
      "must use every parameter: freeze these parameters before "
      "the Reducer is constructed, or do not capture",
      names);
}

} // namespace ddp::detail
