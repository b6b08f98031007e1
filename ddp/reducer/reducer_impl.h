#pragma once

#include <ddp/internal/output_anchors.h>
#include <ddp/reducer.h>
#include <ddp/reducer/core/nested_backwards.h>
#include <ddp/reducer/core/skipped_buckets.h>
#include <ddp/reducer/core/unfrozen_parameters.h>
#include <ddp/reducer/core/unused_parameters.h>
#include <ddp/reducer/join_participation.h>
#include <ddp/reducer/reducer_observers.h>
#include <ddp/reducer/synchronization.h>
#include <ddp/support/error_text.h>

namespace ddp {

struct LayoutState;

/// The machine behind `Reducer`. It assembles a `GradientReduction`, which
/// averages gradients, with what begins and ends it and what observes it:
/// reducer_impl.cpp has what lasts (parameters, hooks), reduction.cpp what
/// happens in a backward, alone.cpp what a group of one does in its place,
/// reducer_state.cpp what another run goes on
/// with, clip_grad_norm.cpp the norm of the gradients, reducer_statistics.cpp
/// what it tells of itself.
struct ReducerImpl final : detail::GradientListener,
                           std::enable_shared_from_this<ReducerImpl> {
  ReducerImpl(
      const detail::ManagedState& state,
      ProcessGroup group,
      ReducerOptions options,
      SyncDecision decision);
  ~ReducerImpl() override;

  static ReducerImpl& of(const Reducer& reducer) {
    return reducer.impl();
  }

  /// For a wrapper, which sends buffers and anchors the outputs.
  static Reducer make_wrapped(
      const std::shared_ptr<torch::nn::Module>& module,
      const ProcessGroup& group,
      const ReducerOptions& options);

  /// Removes the hooks, and leaves the communication hook to others.
  void detach();

  void on_gradient(size_t index, at::Tensor& gradient) override;

  /// Lets backwards that come through `outputs` communicate.
  void anchor(const detail::OutputAnchors& outputs);

  void finish_backward();

  Join join(const JoinOptions& options);
  Joinable& joinable();

  /// Tells the other ranks if an exception is on its way through this one.
  void report_unwinding();

  /// Marks its parameters at its end. Warns, now or later, if it has reduced
  /// nothing.
  void report_unused();

  /// Warns, on one rank, if it ends and ranks hold different parameters.
  void compare_replicas();

  void step_in_backward(torch::optim::Optimizer& optimizer);

  std::vector<BucketIndices> bucket_indices() const;

  /// All managed gradients, those that lie side by side in a bucket as one.
  std::vector<at::Tensor> gradient_runs();

  c10::IValue state_dict();
  void load_state_dict(const c10::IValue& state);
  c10::IValue rank_state_dict();
  void load_rank_state_dict(const c10::IValue& state);

  Timeline timeline() const {
    return options_.record() ? observers_.recorder.timeline() : Timeline();
  }

  Statistics statistics();

  /// Around the wrapper's forwards that gradients follow.
  void forward_began();
  void forward_ended();

  std::vector<at::Tensor> tensors() const;

  void begin_no_sync();
  void end_no_sync();

  bool synchronizes() const {
    return sync_.is_on();
  }
  /// From now on, though it was decided in forwards.
  void decide_in_backward() {
    sync_.decide_in_backward();
  }

  JoinParticipation participation{*this};

 private:
  friend class JoinParticipation;

  using ParameterState = detail::ParameterState;
  using Observer = detail::ReductionObserver;

  static constexpr int64_t kCheckedAlone = 2;

  // What lasts
  std::vector<size_t> add_parameters(const detail::ManagedState& state);
  void claim_hook();
  void attach();
  void lay_out(const LayoutState& state);

  // A backward
  template <typename Function>
  void guarded(Function&& function);
  bool is_of_use() const {
    return !abandoned_ && failure_.empty();
  }
  void fail(const std::string& reason);
  void check_usable();
  void accumulate();
  bool idle() const;
  void open();
  void at_end_of_backward(void (ReducerImpl::*member)());
  void end_backward();
  void begin();
  void arrive(size_t index, at::Tensor& gradient);
  void contribute_rest();
  void finish();
  bool looks_alone() const;
  void finish_alone();
  void check_alone();
  void close();

  const int exceptions_at_construction_ = std::uncaught_exceptions();
  std::mutex mutex_; // GPUs have a backward thread each
  /// Whether there is one: the CPU's is the caller's, or waited for by it.
  bool has_threads_ = false;
  std::vector<ParameterState> parameters_;
  ProcessGroup group_;
  /// The same on all ranks, and no other Reducer's of this process.
  std::string name_;
  ReducerOptions options_;
  detail::BucketStorage buckets_;
  detail::GradientReduction reduction_;
  detail::BucketRebuild rebuild_;
  c10::intrusive_ptr<c10d::Store> store_;
  detail::ReducerObservers observers_;
  detail::UnusedParameters unused_;
  detail::UnfrozenParameters unfrozen_;
  /// By the option.
  std::optional<detail::SkippedBuckets> skipped_;
  detail::NestedBackwards nested_;
  detail::Synchronization sync_;

  /// The reduction that is under way if it is open, or was the last.
  detail::Reduction current_;
  bool open_ = false;
  /// Why this Reducer is of no use any more.
  std::string failure_;
  /// Set where a backward ended before its reduction did.
  std::atomic<bool> abandoned_{false};
  /// How many backwards a group of one has still to check.
  int64_t checked_alone_ = kCheckedAlone;
  bool accumulated_ = false; // without communication
};

template <typename Function>
void ReducerImpl::guarded(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    throw;
  } catch (...) {
    fail("an exception that is no std::exception");
    throw;
  }
}

} // namespace ddp
