#pragma once

#include <ddp/internal/output_anchors.h>
#include <ddp/reducer.h>
#include <ddp/reducer/core/backward_reducer.h>
#include <ddp/reducer/join_participation.h>
#include <ddp/reducer/lone_backward.h>
#include <ddp/reducer/reducer_observers.h>

namespace ddp {

struct LayoutState;

/// The machine behind `Reducer`: its parts, and what concerns several of them.
/// `backward` reduces; reducer_state.cpp has what another run continues with,
/// reducer_end.cpp what a Reducer tells when it ends.
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

  /// For a wrapper, which sends buffers and anchors the outputs.
  static Reducer make_wrapped(
      const std::shared_ptr<torch::nn::Module>& module,
      const ProcessGroup& group,
      const ReducerOptions& options);

  /// Adds the hooks. Frozen parameters get one too: they may be unfrozen.
  void attach();
  /// Removes them, and leaves the communication hook to others.
  void detach();

  /// Lets backwards that come through `outputs` communicate.
  void anchor(const detail::OutputAnchors& outputs);

  void step_in_backward(torch::optim::Optimizer& optimizer);
  Joinable& joinable();

  c10::IValue state_dict();
  void load_state_dict(const c10::IValue& state);
  Statistics statistics() const;

  /// The Reducer ends: tells what the program and other ranks have to know.
  void end();

  ProcessGroup group;
  /// The same on all ranks, and no other Reducer's of this process.
  std::string name;
  ReducerOptions options;
  std::vector<detail::ParameterState> parameters;
  detail::BucketStorage buckets;
  detail::GradientReduction reduction;
  detail::BucketRebuild rebuild;
  /// A part of the group's.
  c10::intrusive_ptr<c10d::Store> store;
  detail::ReducerObservers observers;
  detail::Synchronization synchronization;
  detail::BackwardReducer backward;
  /// In a group of one, in its place.
  std::optional<detail::LoneBackward> lone_backward;
  JoinParticipation participation{*this};

 private:
  std::vector<size_t> trainable_parameters() const;
  detail::GradientListener& listener();
  void claim_hook();
  void lay_out(const LayoutState& state);
  void report_unwinding();
  void report_reduced_nothing();
  void compare_replicas();

  const int exceptions_at_construction_ = std::uncaught_exceptions();
};

} // namespace ddp
