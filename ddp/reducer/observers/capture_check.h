#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/observers/sparse_gradients.h>
#include <ddp/reducer/observers/step_in_backward.h>

namespace ddp::detail {

/// Rejects features that depend on the host, and names them, if a CUDA graph is
/// captured: the graph replays the GPU's part of a step without this code.
class CaptureCheck final : public ReductionObserver {
 public:
  /// In the backward passes up to `compared_steps`, and until `rebuild` is
  /// done, the host lays out the buckets and compares the ranks. The host is
  /// also needed in each step with `checks_steps`, if `sparse` or
  /// `step_in_backward` is not empty, or if `group` reduces over the host. All
  /// references must outlive this object.
  CaptureCheck(
      const std::vector<ParameterState>& parameters,
      const BucketStorage& buckets,
      const BucketRebuild& rebuild,
      const SparseGradients& sparse,
      const StepInBackward& step_in_backward,
      const ProcessGroup& group,
      int64_t compared_steps,
      bool checks_steps)
      : parameters_(parameters),
        buckets_(buckets),
        rebuild_(rebuild),
        sparse_(sparse),
        step_in_backward_(step_in_backward),
        group_(group),
        compared_steps_(compared_steps),
        checks_steps_(checks_steps) {}

  /// Throws `c10::Error` if the reduction cannot be captured.
  void on_begin(const Reduction& reduction) override;

  /// Whether the reduction is recorded into a CUDA graph.
  bool is_capturing() const {
    return capturing_;
  }

  /// Throws `c10::Error` if this rank has unused parameters, since only the
  /// hosts can determine globally unused parameters.
  void on_computed(const Reduction& reduction) override;

 private:
  const std::vector<ParameterState>& parameters_;
  const BucketStorage& buckets_;
  const BucketRebuild& rebuild_;
  const SparseGradients& sparse_;
  const StepInBackward& step_in_backward_;
  const ProcessGroup& group_;
  int64_t compared_steps_;
  bool checks_steps_;
  bool capturing_ = false;
};

} // namespace ddp::detail
