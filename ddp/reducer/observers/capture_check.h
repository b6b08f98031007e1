#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/observers/sparse_gradients.h>
#include <ddp/reducer/observers/step_in_backward.h>

namespace ddp::detail {

/// A CUDA graph replays the GPU's part of a step without this code: nothing in
/// it may depend on the host. Features that depend on the host are rejected by
/// name.
class CaptureCheck final : public ReductionObserver {
 public:
  /// In the backwards up to `compared_steps`, and until `rebuild` is done, the
  /// host lays out the buckets and compares the ranks. `checks_steps`: an
  /// option needs the host in each step, as `sparse` and `step_in_backward` do,
  /// if not empty. All references must outlive it.
  CaptureCheck(
      const std::vector<ParameterState>& parameters,
      const BucketStorage& buckets,
      const BucketRebuild& rebuild,
      const SparseGradients& sparse,
      const StepInBackward& step_in_backward,
      int64_t compared_steps,
      bool checks_steps)
      : parameters_(parameters),
        buckets_(buckets),
        rebuild_(rebuild),
        sparse_(sparse),
        step_in_backward_(step_in_backward),
        compared_steps_(compared_steps),
        checks_steps_(checks_steps) {}

  /// Throws `c10::Error` if the reduction cannot be captured.
  void on_begin(const Reduction& reduction) override;

  /// Whether the reduction is recorded into a CUDA graph.
  bool is_capturing() const {
    return capturing_;
  }

  /// The hosts agree on globally unused parameters. Throws `c10::Error` if this
  /// rank has unused ones.
  void on_computed(const Reduction& reduction) override;

 private:
  const std::vector<ParameterState>& parameters_;
  const BucketStorage& buckets_;
  const BucketRebuild& rebuild_;
  const SparseGradients& sparse_;
  const StepInBackward& step_in_backward_;
  int64_t compared_steps_;
  bool checks_steps_;
  bool capturing_ = false;
};

} // namespace ddp::detail
