// Ranks that keep running while nodes join and leave.
#include <launcher/agent/agent.h>

#include <algorithm>
#include <utility>

namespace ddp {
namespace {

using std::chrono::milliseconds;

// A rank that pauses does not wake the agent, which polls at this interval.
constexpr milliseconds kLookTime(5);
// The time for a rank's current step, if other ranks may be lost.
constexpr milliseconds kStepTime(1000);

} // namespace

// Whether a next group is likely, and all ranks can stay alive until then.
bool Agent::may_pause() const {
  const Membership& log = rendezvous_.membership();
  const NodeOptions& nodes = job_.options.nodes;
  const bool may_change =
      nodes.least < nodes.most || job_.options.max_restarts > 0;
  const bool ends = end_requests_.count() > 0 || !may_change ||
      log.cause == Membership::Cause::kEnd || log.has_failed();
  return !ends && !supervisor_->stopping() &&
      supervisor_->alive().size() == attempt_->ranks.size() &&
      attempt_->can_pause();
}

// Asks the ranks to leave their group. Returns false if they must be stopped.
bool Agent::begin_pause(Time now) {
  if (!may_pause()) {
    return false;
  }
  // If no node is lost, all ranks can complete their step.
  const Membership& log = rendezvous_.membership();
  const bool complete = log.cause == Membership::Cause::kNodes &&
      log.survivors().size() == log.plan.nodes.size();
  const milliseconds patience = complete
      ? std::max(job_.options.grace / 2, kStepTime)
      : std::min(job_.options.grace / 2, kStepTime);
  attempt_->ask_to_pause(patience);
  pause_deadline_ = now + job_.options.grace;
  next_pause_look_ = now;
  return true;
}

void Agent::watch_pause(Time now) {
  next_pause_look_.reset();
  if (supervisor_->stopping() || !supervisor_->running()) {
    return; // a rank failed, or the job ends
  }
  if (!may_pause() || now >= pause_deadline_) {
    send(supervisor_->stop_with_others(now));
  } else if (attempt_->is_paused()) {
    paused_ = true;
  } else {
    next_pause_look_ = now + kLookTime;
  }
}

// The ranks continue in the next plan.
void Agent::end_pause(Listener listener) {
  paused_ = false;
  told_ = false;
  detail_.clear();
  progress_ = ProgressWatch();
  attempt_->go_on(std::move(listener));
}

void Agent::end_paused_ranks() {
  if (!paused_) {
    return;
  }
  send(supervisor_->stop_with_others(Clock::now()));
  wait_while([&] { return supervisor_->running(); });
  end_attempt();
  paused_ = false;
}

} // namespace ddp
