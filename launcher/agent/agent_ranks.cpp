// What the agent does to the ranks, also where they live on while nodes come
// and go.
#include <launcher/agent/agent.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include <common/text.h>
#include <launcher/report/blame.h>

namespace ddp {
namespace {

// After which people want to know what a stopping job waits for.
constexpr std::chrono::seconds kNoticeTime(1);
// What the kernel needs to end a process that was killed, unless a driver or a
// file system holds it.
constexpr std::chrono::seconds kKillTime(10);

// Ranks that pause wake nobody: that is seen after so long.
constexpr std::chrono::milliseconds kLookTime(5);
// For the step that a rank is in, where others may be gone.
constexpr std::chrono::milliseconds kStepTime(1000);

} // namespace

void Agent::send(const Supervisor::Signals& signals) {
  if (!supervisor_) {
    return; // no ranks yet
  }
  for (int signal : signals) {
    // What a hung rank is doing its own handler tells, not its children's.
    const bool leader_only = signal == SIGABRT;
    for (int each : supervisor_->alive()) {
      const pid_t pid = attempt_->ranks[static_cast<size_t>(each)].pid;
      // Between fork and setsid a rank leads no group yet.
      if (leader_only || kill(-pid, signal) != 0) {
        kill(pid, signal);
      }
    }
  }
  const bool stops = supervisor_->stopping() && supervisor_->running();
  if (stops && !signals.empty()) {
    next_notice_ =
        Clock::now() + (signals.back() == SIGKILL ? kKillTime : kNoticeTime);
  }
}

// The terminal stopped the launcher process. A rank leads a session of its own,
// in which nobody could continue it, so that the kernel ignores SIGTSTP's
// default.
void Agent::suspend() {
  suspended_ = Clock::now();
  send({SIGTSTP});
  send({SIGSTOP});
}

void Agent::resume() {
  send({SIGCONT});
  if (suspended_) {
    progress_.resume(*suspended_, Clock::now());
    suspended_.reset();
  }
}

void Agent::watch_ranks(Time now) {
  if (suspended_ || paused_ || next_pause_look_ || supervisor_->stopping()) {
    return;
  }
  std::vector<int> gone;
  std::vector<std::string> calls;
  std::vector<std::optional<ProgressWatch::Beat>> beats(ends_.size());
  for (size_t i = 0; i < ends_.size(); ++i) {
    const Heartbeat heart =
        attempt_->ranks[i].heartbeat.read().value_or(Heartbeat());
    calls.push_back(call_of(heart.activity));
    if (ends_[i].state.alive()) {
      beats[i] = {heart.joined, !calls.back().empty(), heart.beats};
    } else if (departed(ends_[i])) {
      gone.push_back(ends_[i].rank);
    }
  }
  progress_.see(beats, now);
  if (progress_.hangs(job_.options.hang_timeout, now)) {
    detail_ = "no progress for " + describe_time(job_.options.hang_timeout) +
        " (--hang-timeout)";
    send(supervisor_->hang(now));
    return;
  }
  if (gone.empty() || told_waits_) {
    return;
  }
  // Ranks may wait for one that has left, for long: until a timeout of theirs.
  std::map<std::string, std::vector<int>> callers;
  for (size_t each : progress_.waiting(kLongWait, now)) {
    callers[calls[each]].push_back(attempt_->ranks[each].rank);
  }
  if (!callers.empty()) {
    say_who_waits(callers, gone);
    told_waits_ = true;
  }
}

// Whether a next group is likely, and all ranks can live until then.
bool Agent::may_pause() const {
  const Membership& log = rendezvous_.membership();
  const NodeOptions& nodes = job_.options.nodes;
  const bool may_change =
      nodes.least < nodes.most || job_.options.max_restarts > 0;
  const bool ends = end_requests_ > 0 || !may_change ||
      log.cause == Membership::Cause::kEnd || log.has_failed();
  return !ends && !supervisor_->stopping() &&
      supervisor_->alive().size() == attempt_->ranks.size() &&
      attempt_->can_pause();
}

// Asks the ranks to leave their group. False where they have to be stopped.
bool Agent::begin_pause(Time now) {
  if (!may_pause()) {
    return false;
  }
  // Where nobody is lost, all can finish their step.
  const Membership& log = rendezvous_.membership();
  const bool complete = log.cause == Membership::Cause::kNodes &&
      log.survivors().size() == log.plan.nodes.size();
  const std::chrono::milliseconds patience = complete
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

// The ranks go on in the next plan.
void Agent::end_pause(Listener listener) {
  paused_ = false;
  told_ = false;
  detail_.clear();
  progress_ = ProgressWatch();
  attempt_->go_on(std::move(listener));
}

// They are of no more use.
void Agent::end_paused_ranks() {
  if (!paused_) {
    return;
  }
  send(supervisor_->stop_with_others(Clock::now()));
  while (supervisor_->running()) {
    wait_for_events();
  }
  end_attempt();
  paused_ = false;
}

} // namespace ddp
