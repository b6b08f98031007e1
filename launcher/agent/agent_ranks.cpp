// Signals to the ranks, and their progress.
#include <launcher/agent/agent.h>

#include <csignal>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include <common/text.h>
#include <launcher/report/blame.h>

namespace ddp {
namespace {

// The time after which a message names the ranks that a stopping job waits for.
constexpr std::chrono::seconds kWarningTime(1);
// The kernel ends a killed process within this time, unless a driver or a file
// system blocks it.
constexpr std::chrono::seconds kKillTime(10);

} // namespace

void Agent::send(const Supervisor::Signals& signals) {
  if (!supervisor_) {
    return; // no ranks yet
  }
  for (int signal : signals) {
    // A hung rank's own handler reports its activity, not its children's.
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
    next_warning_ =
        Clock::now() + (signals.back() == SIGKILL ? kKillTime : kWarningTime);
  }
}

// The terminal stopped the launcher process. A rank leads a separate session,
// in which no shell could continue it, so the kernel ignores SIGTSTP's default
// action.
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
  const auto timeout = job_.options.hang_timeout;
  rendezvous_.machine().ranks_quiet(
      progress_.hangs(timeout, now),
      "no progress for " + describe_time(timeout) + " (--hang-timeout)");
  take_commands(); // to end a job that hangs
  if (supervisor_->stopping() || gone.empty() || told_waits_) {
    return;
  }
  // Ranks may wait for a rank that has left, until their timeout.
  std::map<std::string, std::vector<int>> callers;
  for (size_t each : progress_.waiting(kLongWait, now)) {
    callers[calls[each]].push_back(attempt_->ranks[each].rank);
  }
  if (!callers.empty()) {
    say_who_waits(callers, gone);
    told_waits_ = true;
  }
}

} // namespace ddp
