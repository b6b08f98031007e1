#include <ddp/reducer/observers/capture_check.h>

#include <ddp/backends/nccl.h>
#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {

void CaptureCheck::begin(
    int64_t step,
    int64_t settles_after,
    bool asks_host,
    bool sparse) {
  const auto& buckets = buckets_.all();
  capturing_ =
      std::any_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) {
        return backends::nccl::is_capturing(bucket.content.buffer.device());
      });
  if (!capturing_) {
    return;
  }
  DDP_CHECK(
      step > settles_after,
      "capturing a CUDA graph: this is backward {}, and in the first {} the "
      "host settles the buckets and compares the ranks. Run {} or more without "
      "capturing before",
      step,
      settles_after,
      settles_after);
  DDP_CHECK(
      !asks_host,
      "capturing a CUDA graph: check_finite, check_divergence_every, join and "
      "step_in_backward need the host in each step; leave them off");
  DDP_CHECK(
      !sparse,
      "capturing a CUDA graph: sparse gradients need the host in each step");
}

void CaptureCheck::on_computed(const Reduction& reduction) {
  if (!capturing_ || reduction.unused.empty()) {
    return;
  }
  std::string names;
  for (const size_t index : reduction.unused) {
    names += (names.empty() ? "" : ", ") + parameters_[index].name;
  }
  DDP_THROW(
      Error,
      "capturing a CUDA graph: backward did not reach {}. A captured step "
      "must use every parameter: freeze those before the Reducer is "
      "constructed, or do not capture",
      names);
}

} // namespace ddp::detail
