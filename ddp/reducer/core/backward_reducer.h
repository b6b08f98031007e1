#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/core/nested_backwards.h>
#include <ddp/reducer/core/skipped_buckets.h>
#include <ddp/reducer/core/synchronization.h>
#include <ddp/reducer/core/unfrozen_parameters.h>
#include <ddp/reducer/core/unused_parameters.h>

#include <atomic>
#include <mutex>

namespace ddp::detail {

/// Reduces the gradients of one backward pass after another: opens a reduction
/// with the first gradient and marks gradients ready as they arrive. At the end
/// of backward, `launch_rest` marks the other parameters ready;
/// `finalize_backward` waits for the buckets and populates the gradients.
class BackwardReducer final : public GradientListener {
 public:
  /// `name` is the Reducer's name, `store` its part of the group's store. All
  /// references must outlive this object.
  BackwardReducer(
      const std::string& name,
      const ProcessGroup& group,
      const ReducerOptions& options,
      const c10::intrusive_ptr<c10d::Store>& store,
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      GradientReduction& reduction,
      BucketRebuild& rebuild,
      BackwardComparison& comparison,
      Synchronization& synchronization,
      ObserverList& observers);

  /// Sets the owner of this object. If a backward pass outlives `owner`, the
  /// end of the pass does nothing.
  void set_owner(std::weak_ptr<void> owner) {
    owner_ = std::move(owner);
  }

  void on_gradient(size_t index, at::Tensor& gradient) override;

  /// False after an exception.
  bool is_of_use() const override {
    return !abandoned_ && failure_.empty();
  }
  /// Throws `c10::Error` unless `is_of_use`.
  void check_not_failed();

  /// Records that a backward pass has reached an output, so its gradients will
  /// be reduced.
  void reach_output();

  /// Reduces pending gradients, unless the last backward pass was reduced.
  void finish_backward();

  /// Begins the steps of the other ranks' backward pass, without gradients.
  void begin_without_inputs(const Participants& participants);
  /// Does nothing unless `begin_without_inputs` was called.
  void finish_without_inputs();

  bool is_open() const {
    return open_;
  }
  /// The number of reductions that have begun.
  int64_t steps() const {
    return current_.step;
  }

  UnfrozenParameters& unfrozen() {
    return unfrozen_;
  }

 private:
  template <typename Function>
  void guarded(Function&& function);
  void fail(const std::string& reason);
  bool idle() const;
  void open();
  void at_end_of_backward(void (BackwardReducer::*member)());
  void on_end_of_backward();
  void begin(const Participants& participants);
  void arrive(size_t index, at::Tensor& gradient);
  void launch_rest();
  void finalize_backward();
  void close();

  const std::string& name_;
  const ProcessGroup& group_;
  std::weak_ptr<void> owner_;
  std::mutex mutex_; // each GPU has a backward thread
  /// False on the CPU, where the caller runs backward or waits for the thread
  /// that runs it.
  bool has_threads_;
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  GradientReduction& reduction_;
  BucketRebuild& rebuild_;
  BackwardComparison& comparison_;
  Synchronization& sync_;
  ObserverList& observers_;
  UnusedParameters unused_;
  UnfrozenParameters unfrozen_;
  /// Set if `skip_all_reduce_unused_params` is on.
  std::optional<SkippedBuckets> skipped_;
  NestedBackwards nested_;

  /// The reduction in progress if `open_` is true; otherwise the last
  /// reduction.
  Reduction current_;
  bool open_ = false;
  /// The reason why this object cannot be used.
  std::string failure_;
  /// Set if a backward pass ended before its reduction did.
  std::atomic<bool> abandoned_{false};
};

} // namespace ddp::detail
