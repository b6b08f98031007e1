#pragma once

#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer/core/scaled_copy.h>
#include <ddp/reducer_options.h>

namespace ddp::detail {

/// The name of the operation in the message of a failed wait.
constexpr const char* kReduction = "the reduction of gradients";

/// Averages the gradients of one backward pass after another. Copies each ready
/// gradient into its bucket, scaled, and reduces complete buckets in order,
/// since the ranks' collectives must match. The results become the gradients.
class GradientReduction {
 public:
  /// All references must outlive this object.
  GradientReduction(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      const ProcessGroup& group,
      const ReducerOptions& options,
      const ObserverList& observers);

  void begin(const Reduction& reduction);

  /// Adds this rank's gradient of the parameter. For an unused parameter, the
  /// gradient may be undefined or from an earlier step. Launches complete
  /// buckets. Throws `c10::Error` if the gradient does not fit the parameter.
  void mark_ready(size_t index, at::Tensor& gradient);
  /// Same as above, for all parameters of buckets that are still pending.
  void mark_rest_ready();
  /// Whether all buckets have been launched or left out.
  bool all_launched() const {
    return next_ == buckets_.size();
  }

  /// Waits for a bucket that has been launched.
  void wait(Bucket& bucket);
  /// Sets the parameter's gradient to its slice of the bucket; a gradient with
  /// a graph gets only the values. For a used parameter without a graph,
  /// `put_slice_in_place` has already set the gradient.
  void populate_grad(ParameterState& parameter);
  void populate_grads();
  /// Restores the earlier gradient, if any; without inputs, resets it.
  void restore(ParameterState& parameter);

  /// Prepares for the next backward pass.
  void reset();

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
  /// Whether a sum needs scaled gradients: a divisor of 1 changes none.
  bool scales() const {
    return prescale_ && divisor_ != 1;
  }

  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  ProcessGroup group_;
  const ObserverList& observers_;
  std::shared_ptr<CommHook> hook_;
  /// Whether gradients are scaled before the sum, and whether gradients already
  /// in the slice are divided.
  bool prescale_;
  bool by_division_;
  int64_t step_ = 0;
  int64_t divisor_ = 0;
  Factor factor_;
  bool has_inputs_ = true;
  /// The next bucket to launch.
  size_t next_ = 0;
  /// Whether any parameter's grad must be populated at the end.
  bool populates_ = false;
};

} // namespace ddp::detail
