#pragma once

#include <ddp/internal/output_anchors.h>
#include <ddp/reducer.h>
#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/reducer/core/unused_agreement.h>
#include <ddp/reducer/join_participation.h>
#include <ddp/reducer/reducer_observers.h>
#include <ddp/support/error_text.h>

namespace ddp {

/// When it is decided whether a backward communicates.
enum class SyncDecision {
  kInBackward, ///< with its first gradient: yes, unless a guard lives then
  kInForward, ///< before: yes, where it comes through an output with an anchor
};

struct LayoutState;

/// The machine behind `Reducer`. It assembles a `GradientReduction`, which
/// averages gradients, with what begins and ends it and what observes it:
/// reducer_impl.cpp has what lasts (parameters, hooks), reduction.cpp what
/// happens in a backward, participation.cpp which parameters take part,
/// outcome.cpp what comes of it, reducer_state.cpp what another run goes on
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
    return no_sync_depth_ == 0;
  }

  SyncDecision decision;
  JoinParticipation participation{*this};

 private:
  friend class JoinParticipation;

  using ParameterState = detail::ParameterState;
  using Contribution = ParameterState::Contribution;
  using Observer = detail::ReductionObserver;

  static constexpr int64_t kCheckedAlone = 2;

  // What lasts
  std::vector<size_t> add_parameters(const detail::ManagedState& state);
  void manage(const std::vector<size_t>& indices);
  void claim_hook();
  void attach();
  void find_unfrozen();
  void adopt_unfrozen();
  void compare_in_backward(
      const std::string& noun,
      const std::vector<size_t>& indices);
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
  bool communicates() const;
  void open();
  void at_end_of_backward(void (ReducerImpl::*member)());
  void end_backward();
  void begin();
  void arrive(size_t index, at::Tensor& gradient);
  void skip_unused_buckets();
  void compare_skipped();
  void find_nested();
  void find_absent();
  void contribute_rest();
  void finish();
  bool looks_alone() const;
  void finish_alone();
  void check_alone();
  void restore_unused();
  std::vector<size_t> unused_by_all();
  void close();

  const int exceptions_at_construction_ = std::uncaught_exceptions();
  int64_t no_sync_depth_ = 0;
  std::mutex mutex_; // GPUs have a backward thread each
  /// Whether there is one: the CPU's is the caller's, or waited for by it.
  bool has_threads_ = false;
  std::vector<ParameterState> parameters_;
  /// How many are managed.
  size_t managed_ = 0;
  ProcessGroup group_;
  /// The same on all ranks, and no other Reducer's of this process.
  std::string name_;
  ReducerOptions options_;
  detail::BucketStorage buckets_;
  detail::GradientReduction reduction_;
  detail::BucketRebuild rebuild_;
  c10::intrusive_ptr<c10d::Store> store_;
  detail::UnusedAgreement unused_agreement_;
  detail::ReducerObservers observers_;

  /// The reduction that is under way if it is open, or was the last.
  detail::Reduction current_;
  bool open_ = false;
  /// Whether an anchored forward came since the last reduction.
  bool forward_pending_ = false;
  /// Why this Reducer is of no use any more.
  std::string failure_;
  /// Set where a backward ended before its reduction did.
  std::atomic<bool> abandoned_{false};
  /// The buckets that were skipped last, the same on all ranks.
  std::vector<size_t> skipped_;
  /// The backward in which unfrozen parameters were looked for last.
  int searched_task_ = -1;
  /// The newest backward, by the engine's count, that a gradient came in.
  int newest_task_ = -1;
  /// Whether backwards nest so deeply that one can have several reductions.
  bool deeply_nested_ = false;
  /// Whether a reduction has run since `finish_backward`.
  bool reduced_ = false;
  /// Whether that is called at all.
  bool finishes_ = false;
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
