#include <ddp/reducer/join_participation.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/reducer_impl.h>

#include <ATen/core/grad_mode.h>

#include <utility>

namespace ddp {
namespace {

// The numbers of the calls.
constexpr int64_t kReductionCall = 0;
constexpr int64_t kForwardCall = 1;
constexpr int64_t kEndCall = 2;

} // namespace

/// `step` was reported by this rank, or by the ranks with inputs.
detail::Participants JoinParticipation::participants_of(
    const JoinStep& step) const {
  detail::Participants result;
  result.divisor = step.divisor;
  result.of_all = step.live == reducer_.group.size();
  result.root = step.last_live;
  result.joined = true;
  result.waited_for = shares_steps() || reducer_.options.comm_hook();
  return result;
}

void JoinParticipation::on_open(detail::Participants& participants) {
  if (const auto step = notify_join_context(kReductionCall)) {
    participants = participants_of(*step);
    had_no_inputs_ = false; // if a join failed after it was set
  }
}

/// What follows may be collective: observers' ends, and an agreement on unused
/// parameters.
void JoinParticipation::on_finalize(const detail::Reduction& reduction) {
  if (reduction.has_inputs && shares_steps()) {
    notify_join_context(kEndCall);
  }
}

/// Also notifies without buffers if ranks throw early: the forward pass may
/// itself communicate, as that of `SyncBatchNorm` does.
int64_t JoinParticipation::notify_forward(bool gives_buffers) {
  const bool tells =
      gives_buffers || (throws_early() && at::GradMode::is_enabled());
  const auto step = tells ? notify_join_context(kForwardCall) : std::nullopt;
  return step ? step->last_live : 0;
}

/// The mean also becomes this rank's gradient, as on a rank that used no
/// parameter, until `post_hook`.
void JoinParticipation::main_hook(const JoinStep& step) {
  if (step.call == kForwardCall) {
    forward_main_hook(step.last_live);
  } else if (step.call == kReductionCall) {
    auto participants = participants_of(step);
    participants.has_inputs = false;
    had_no_inputs_ = true;
    reducer_.backward.begin_without_inputs(participants);
  } // else the end, by `complete_main_hook`
}

void JoinParticipation::complete_main_hook() {
  reducer_.backward.finish_without_inputs();
}

/// The Reducer reports failures to its own group. Another rank may also wait,
/// within a step that this rank has completed, for a comparison.
void JoinParticipation::check_wait(const ProcessGroup& group) {
  const auto& own = detail::ProcessGroupImpl::of(reducer_.group);
  if (&own != &detail::ProcessGroupImpl::of(group)) {
    detail::look_for_failure(own);
  }
  if (!reducer_.backward.is_open()) {
    reducer_.observers.comparison.on_long_wait();
  }
}

/// Ranks that stopped early have parameters of an earlier step, and a loop that
/// resets gradients after its steps has not reset theirs.
void JoinParticipation::post_hook(int64_t root) {
  if (std::exchange(had_no_inputs_, false)) {
    for (const auto& parameter : reducer_.parameters) {
      if (parameter.trainable) {
        parameter.tensor.mutable_grad().reset();
      }
    }
  }
  auto state = reducer_.buckets.tensors();
  if (reducer_.options.broadcast_buffers()) {
    const auto buffers = reducer_.observers.buffers.tensors();
    state.insert(state.end(), buffers.begin(), buffers.end());
  }
  broadcast_tensors(state, reducer_.group, root);
  if (after_join) {
    after_join();
  }
}

} // namespace ddp
