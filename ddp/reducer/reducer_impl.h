#pragma once

#include <ddp/internal/output_anchors.h>
#include <ddp/reducer.h>
#include <ddp/reducer/core/backward_reducer.h>
#include <ddp/reducer/join_participation.h>
#include <ddp/reducer/lone_backward.h>
#include <ddp/reducer/reducer_observers.h>

namespace ddp {

struct LayoutState;

/// The implementation of `Reducer`: its parts, and code that concerns several
/// parts. `backward` reduces gradients. reducer_state.cpp contains the state
/// for a resumed run, and reducer_end.cpp the reports at the end of a Reducer.
struct ReducerImpl final : std::enable_shared_from_this<ReducerImpl> {
  ReducerImpl(
      const detail::TargetState& state,
      ProcessGroup group,
      ReducerOptions options,
      SyncDecision decision);
  ~ReducerImpl();

  static ReducerImpl& of(const Reducer& reducer) {
    return reducer.impl();
  }

  /// Makes a Reducer for a wrapper, which sends buffers and anchors outputs.
  static Reducer make_wrapped(
      const std::shared_ptr<torch::nn::Module>& module,
      const ProcessGroup& group,
      const ReducerOptions& options);

  /// Adds the hooks, including hooks on frozen parameters, which may be
  /// unfrozen later.
  void attach();
  /// Removes the hooks, and releases the communication hook.
  void detach();

  /// Makes backward passes through `outputs` communicate, unless all parameters
  /// are frozen before the forward pass. May then report layers that were
  /// added.
  void anchor(const detail::OutputAnchors& outputs);

  void step_in_backward(torch::optim::Optimizer& optimizer);
  Joinable& joinable();

  c10::IValue state_dict();
  void load_state_dict(const c10::IValue& state);
  Statistics statistics() const;

  /// Reports the end of the Reducer to the program and the other ranks.
  void end();

  ProcessGroup group;
  /// A name that is equal on all ranks, and unique in this process.
  std::string name;
  ReducerOptions options;
  std::vector<detail::ParameterState> parameters;
  detail::BucketStorage buckets;
  detail::GradientReduction reduction;
  detail::BucketRebuild rebuild;
  /// A part of the group's store.
  c10::intrusive_ptr<c10d::Store> store;
  detail::ReducerObservers observers;
  detail::Synchronization synchronization;
  detail::BackwardReducer backward;
  /// Replaces `backward` in a group of one.
  std::optional<detail::LoneBackward> lone_backward;
  JoinParticipation participation{*this};

 private:
  std::vector<size_t> trainable_parameters() const;
  /// Whether all parameters are frozen, so that gradients only pass through.
  bool is_frozen() const;
  detail::GradientListener& listener();
  void claim(CommHook& hook, const ProcessGroup& its_group);
  void lay_out(const LayoutState& state);
  void report_unwinding();
  void report_reduced_nothing();
  void compare_replicas();

  /// `listener()`, for as long as this uses the hook.
  std::shared_ptr<detail::GradientListener> hook_user_;
  const int exceptions_at_construction_ = std::uncaught_exceptions();
  /// The parameters' versions when all ranks received rank 0's values.
  uint64_t versions_at_start_ = 0;
};

} // namespace ddp
