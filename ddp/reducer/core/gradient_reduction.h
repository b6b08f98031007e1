#pragma once

#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// In the message of a wait that failed.
constexpr const char* kReduction = "the reduction of gradients";

/// Averages the gradients of one backward after the other: a gradient that is
/// ready is copied into its bucket and scaled, a bucket that is complete is
/// reduced, in order, since the ranks' collectives must match, and what comes
/// of it becomes the gradients.
class GradientReduction {
 public:
  /// All that is referred to must live as long.
  GradientReduction(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      const ProcessGroup& group,
      const ReducerOptions& options,
      const ObserverList& observers);

  void begin(const Reduction& reduction);

  /// The gradient is what this rank contributes of the parameter, or may be
  /// undefined or from before, where the parameter is not used. Starts the
  /// buckets that are complete. Throws `c10::Error` if the gradient does not
  /// fit the parameter.
  void mark_ready(size_t index, at::Tensor& gradient);
  /// The same of all parameters of buckets that are still pending.
  void mark_rest_ready();
  /// Whether all buckets have been started or left out.
  bool is_complete() const {
    return next_ == buckets_.size();
  }

  /// Waits for a bucket that has been started.
  void wait(Bucket& bucket);
  /// Makes the slice the parameter's gradient, where it is not already.
  void populate_grad(ParameterState& parameter);
  void populate_grads();
  /// Puts back what was there before, if anything.
  void restore(ParameterState& parameter);

  /// Makes ready for the next one.
  void end();

  CommHook& hook() const {
    return *hook_;
  }

 private:
  void copy_or_keep(ParameterState& parameter, at::Tensor& gradient);
  void put_slice_in_place(ParameterState& parameter, at::Tensor& gradient);
  void mark_unused(ParameterState& parameter);
  void launch_complete_buckets();
  void launch_bucket(Bucket& bucket);
  void copy_outside(Bucket& bucket);
  void scale(Bucket& bucket);
  void divide(at::Tensor& gradients);

  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  ProcessGroup group_;
  const ObserverList& observers_;
  std::shared_ptr<CommHook> hook_;
  /// Whether gradients are scaled before they are summed, and how, where they
  /// lie in the slice already.
  bool prescale_;
  bool by_division_;
  int64_t step_ = 0;
  int64_t divisor_ = 0;
  at::Tensor factor_;
  bool has_inputs_ = true;
  /// The next bucket to start.
  size_t next_ = 0;
  /// Whether some gradient has to be made of its slice at the end.
  bool populates_ = false;
};

} // namespace ddp::detail
