#pragma once

#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// A CUDA graph replays the GPU's part of a step without this code: nothing in
/// it may depend on the host. What does is refused by name.
class CaptureCheck final : public ReductionObserver {
 public:
  /// Both must live as long.
  CaptureCheck(
      const std::vector<ParameterState>& parameters,
      const BucketStorage& buckets)
      : parameters_(parameters), buckets_(buckets) {}

  /// At the beginning of a reduction. `settles_after`: in the backwards up to
  /// this one the host lays out the buckets and compares the ranks.
  /// `asks_host`: an option needs the host in each step; `sparse`: so do sparse
  /// gradients. Throws `c10::Error`.
  void begin(int64_t step, int64_t settles_after, bool asks_host, bool sparse);

  /// Whether the reduction is recorded into a CUDA graph.
  bool is_capturing() const {
    return capturing_;
  }

  /// Which parameters no rank used is agreed on by the hosts. Throws
  /// `c10::Error` where this rank has unused ones.
  void on_computed(const Reduction& reduction) override;

 private:
  const std::vector<ParameterState>& parameters_;
  const BucketStorage& buckets_;
  bool capturing_ = false;
};

} // namespace ddp::detail
