#pragma once

#include <ddp/internal/output_anchors.h>
#include <ddp/process_group/async_broadcast.h>
#include <ddp/reducer.h>
#include <ddp/reducer/absences.h>
#include <ddp/reducer/core/bucket.h>
#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/reducer/core/managed_state.h>
#include <ddp/reducer/core/one_of_several.h>
#include <ddp/reducer/observers/layout_trial.h>
#include <ddp/reducer/observers/recorder.h>
#include <ddp/reducer/observers/step_check.h>
#include <ddp/reducer/observers/timeline_file.h>
#include <ddp/reducer/observers/unmanaged_leaves.h>
#include <ddp/support/error_text.h>

#include <future>

namespace ddp {

/// When it is decided whether a backward communicates.
enum class SyncDecision {
  kInBackward, ///< with its first gradient: yes, unless a guard lives then
  kInForward, ///< before: yes, where it comes through an output with an anchor
};

struct LayoutState;

/// The machine behind `Reducer`: reducer_impl.cpp has what lasts (parameters,
/// hooks, buckets), reduction.cpp what happens in a backward, participation.cpp
/// which parameters take part, contribution.cpp what this rank puts into it,
/// outcome.cpp what it gets out, reducer_layout.cpp how buckets are cut from
/// measured times, reducer_join.cpp what it does where inputs are uneven,
/// reducer_state.cpp what another run goes on with, clip_grad_norm.cpp the norm
/// of the gradients, reducer_statistics.cpp what it tells of itself.
struct ReducerImpl final : detail::GradientListener,
                           Joinable,
                           std::enable_shared_from_this<ReducerImpl> {
  ReducerImpl(
      detail::ManagedState state,
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

  /// Which rank's buffers the wrapper's forward gives all ranks, if it does;
  /// those without inputs call `on_shadow_forward` then.
  int64_t announce_forward(bool gives_buffers);
  std::function<void(int64_t root)> on_shadow_forward;
  std::function<void()> on_join_end;

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
    return options_.record() ? recorder_.timeline() : Timeline();
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

 private:
  static constexpr size_t kNoBucket = static_cast<size_t>(-1);
  static constexpr int64_t kCheckedAlone = 2;
  /// One alone may not depend on the data: a penalty's, or of a weight of 0.
  static constexpr int64_t kComparedSteps = 2;

  enum class Share {
    kPending, ///< nothing yet
    kOutside, ///< the gradient, to be brought into the slice with others
    kUnscaled, ///< the gradient, which lies in the slice itself
    kScaled, ///< a copy of the gradient, scaled
    kAbsent, ///< nothing new: the gradient from before, or zero
  };

  struct Parameter {
    /// Whether `now`, the tensor or its gradient, is as it was at construction.
    bool fits(const at::Tensor& now) const;
    bool has_grown(const at::Tensor& gradient) const;
    void remember_version();
    /// Whether the gradient is the slice.
    bool lies_in_slice(const at::Tensor& gradient) const;

    // What a hook reads and writes, side by side.
    at::Tensor tensor;
    /// Its bucket and its slice of it; none for sparse gradients.
    size_t bucket = kNoBucket;
    at::Tensor view;
    /// The slice's version after the last reduction.
    int64_t version = -1;
    at::ScalarType dtype = at::kFloat;
    c10::Device device{c10::kCPU};
    bool sparse = false;
    /// Not while it is frozen from the start.
    bool managed = false;
    /// Whether it has been seen unfrozen since.
    bool thawed = false;
    /// Whether it came in a backward inside another.
    bool nested = false;
    /// Whether it got a gradient since the last reduction.
    bool used = false;
    /// How often its gradient comes in a backward (more than once with
    /// activation checkpointing). 0 until it came once.
    int expected_arrivals = 0;
    std::vector<int64_t> sizes;

    // In this backward:
    int arrivals = 0;
    /// The engine's number of the backward that it came in last.
    int task = -1;
    Share share = Share::kPending;
    /// A gradient with a graph (create_graph), to get the mean's value.
    at::Tensor with_graph;
    /// The gradient from before, should no rank add to it.
    at::Tensor before;
    /// A sparse gradient under way.
    c10::intrusive_ptr<c10::ivalue::Future> sparse_future;

    /// As it was given, and in words: "3" and "parameter 3".
    std::string key;
    std::string name;
  };

  // What lasts
  std::vector<size_t> add_parameters(const detail::ManagedState& state);
  void manage(const std::vector<size_t>& indices);
  void claim_hook();
  void attach();
  bool shares_parameters(const torch::optim::Optimizer& optimizer) const;
  void install(const std::vector<BucketIndices>& indices);
  void find_thawed();
  void adopt_thawed();
  void compare_in_backward(
      const std::string& noun,
      const std::vector<size_t>& indices);
  void check_compared_elsewhere();
  void agree_on_order();
  void rebuild_buckets();
  void lay_out(const LayoutState& state);

  // Measured buckets
  std::vector<BucketIndices> split(
      const std::vector<size_t>& order,
      const std::vector<size_t>& counts) const;
  void advance_trial();
  void try_measured_layout();
  void agree_on_cut();
  void judge_layout();
  bool trial_wanted() const;
  void start_trial();
  void end_trial();

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
  void meet();
  void meet_at_end();
  void shadow(const JoinStep& step) override;
  void complete_shadow() override;
  bool overlaps() const override {
    return true;
  }
  void end_join(int64_t root) override;
  bool communicates() const;
  void open();
  void at_end_of_backward(void (ReducerImpl::*member)());
  void end_backward();
  void begin();
  void check_capture();
  void check_captured_absences() const;
  void inspect_graph();
  void arrive(size_t index, at::Tensor& gradient);
  void contribute(size_t index, at::Tensor& gradient);
  void copy_or_keep(Parameter& parameter, at::Tensor& gradient);
  void put_slice_in_place(Parameter& parameter, at::Tensor& gradient);
  void bring_in(Bucket& bucket);
  void contribute_before(Parameter& parameter);
  void check_gradient(const Parameter& parameter, const at::Tensor& gradient);
  void launch_complete();
  void launch(Bucket& bucket);
  void divide_by(int64_t divisor);
  void divide(at::Tensor& gradients);
  void scale(Bucket& bucket);
  void launch_sparse(Parameter& parameter);
  void skip_unused_buckets();
  void compare_skipped();
  void find_nested();
  void find_absent();
  void check_belonging();
  void contribute_rest();
  void finish();
  bool looks_alone() const;
  void finish_alone();
  void check_alone();
  void wait_for(Bucket& bucket);
  void settle_absences();
  std::vector<int64_t> bucket_sizes() const;
  void record_contribution();
  void record_end();
  void hand_out(Parameter& parameter);
  void close();

  const int exceptions_at_construction_ = std::uncaught_exceptions();
  int64_t no_sync_depth_ = 0;
  std::mutex mutex_; // GPUs have a backward thread each
  /// Whether there is one: the CPU's is the caller's, or waited for by it.
  bool has_threads_ = false;
  std::vector<Parameter> parameters_;
  /// Those with sparse gradients.
  std::vector<size_t> sparse_;
  /// How many are managed.
  size_t managed_ = 0;
  std::vector<Bucket> buckets_;
  ProcessGroup group_;
  /// The same on all ranks, and no other Reducer's of this process.
  std::string name_;
  detail::OneOfSeveral one_of_several_;
  ReducerOptions options_;
  /// Whether buffers are the Reducer's to broadcast.
  bool broadcasts_buffers_;
  std::function<NamedTensors()> buffers_;
  /// As in `ManagedState`.
  std::function<NamedTensors()> current_;
  std::optional<std::weak_ptr<torch::nn::Module>> owned_;
  std::shared_ptr<CommHook> hook_;
  bool prescale_;
  /// What sums over ranks are divided by.
  int64_t divisor_ = 0;
  at::Tensor factor_;
  c10::intrusive_ptr<c10d::Store> store_;
  detail::Absences absences_;
  detail::AsyncBroadcast buffer_broadcast_;
  /// In the first backwards only.
  std::optional<detail::UnmanagedLeaves> unmanaged_;

  /// Whether ranks compare what they should share, and may not.
  bool compares_replicas_;
  /// A digest of this rank's own gradients in the first reductions.
  uint64_t first_gradients_ = 0;

  /// Counts reductions, from 1.
  int64_t step_ = 0;
  /// In which of them `compare_in_backward` was called last.
  int64_t compared_step_ = 0;
  /// What the store was asked of other ranks, while it has not answered.
  std::future<std::string> compared_;
  /// After which of them the buckets are rebuilt; none: never, or they have
  /// been.
  std::optional<int64_t> rebuild_step_;
  /// What the buckets were laid out over: the parameters of the start, or the
  /// order of the rebuild, and then what was unfrozen later, each time.
  std::vector<std::vector<size_t>> orders_;
  /// Whether a reduction is under way.
  bool open_ = false;
  /// Whether it is recorded into a CUDA graph.
  bool capturing_ = false;
  /// Where inputs are uneven: who takes part in this reduction.
  std::optional<JoinStep> join_step_;
  /// Whether this rank has none, and takes part with zeros.
  bool shadowing_ = false;
  /// Whether an anchored forward came since the last reduction.
  bool forward_pending_ = false;
  /// Why this Reducer is of no use any more.
  std::string failure_;
  /// Set where a backward ended before its reduction did.
  std::atomic<bool> abandoned_{false};
  /// The next bucket to launch.
  size_t next_ = 0;
  /// How many managed gradients are not in a bucket yet.
  size_t pending_ = 0;
  /// Whether some gradient has to be made of its slice at the end.
  bool hands_out_ = false;
  /// The order in which gradients came.
  std::vector<size_t> ready_order_;
  at::Tensor order_;
  Work order_work_;
  /// The buckets that were skipped last, the same on all ranks.
  std::vector<size_t> skipped_;
  /// What this rank has nothing new for in this backward.
  std::vector<size_t> absent_;
  /// Those that were looked for in the module last.
  std::vector<size_t> absent_before_;
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
  detail::StepCheck check_;
  std::optional<detail::TimelineFile> timeline_file_;
  detail::Recorder recorder_;
  /// Whether this backward's `ready_order_` is wanted.
  bool notes_order_ = false;
  /// As they were first.
  std::vector<int64_t> first_sizes_;
  bool laid_out_anew_ = false;
  /// While buckets are measured.
  std::optional<detail::LayoutTrial> trial_;
  /// Of the first order: how many neighbours share a bucket, where measured.
  std::vector<size_t> counts_;
  /// What the trial goes back to where it does not pay.
  std::vector<size_t> former_order_;
  std::vector<BucketIndices> former_buckets_;
  /// Steps at the end of backward.
  torch::optim::Optimizer* optimizer_ = nullptr;
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
