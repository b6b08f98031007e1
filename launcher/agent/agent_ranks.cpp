// What the agent does to the ranks.
#include <launcher/agent/agent.h>

#include <csignal>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include <common/text.h>
#include <launcher/report/activity.h>

namespace ddp {
namespace {

// After which people want to know what a stopping job waits for.
constexpr std::chrono::seconds kNoticeTime(1);
// What the kernel needs to end a process that was killed, unless a driver or a
// file system holds it.
constexpr std::chrono::seconds kKillTime(10);

} // namespace

void Agent::send(const Supervisor::Signals& signals) {
  if (!supervisor_) {
    return; // no ranks yet
  }
  for (int signal : signals) {
    for (int each : supervisor_->alive()) {
      send_to(static_cast<size_t>(each), signal);
    }
  }
  const bool stops = supervisor_->stopping() && supervisor_->running();
  if (stops && !signals.empty()) {
    next_notice_ =
        Clock::now() + (signals.back() == SIGKILL ? kKillTime : kNoticeTime);
  }
}

void Agent::send_to(size_t index, int signal) const {
  const pid_t pid = attempt_->ranks()[index].pid;
  // What a hung rank is doing its own handler tells, not its children's.
  const bool leader_only = signal == SIGABRT;
  // Between fork and setsid a rank leads no group yet.
  if (leader_only || kill(-pid, signal) != 0) {
    kill(pid, signal);
  }
}

// The terminal stopped the front. A rank leads a session of its own, in which
// nobody could continue it, so that the kernel ignores SIGTSTP's default.
void Agent::suspend() {
  suspended_ = Clock::now();
  send({SIGTSTP});
  send({SIGSTOP});
}

void Agent::resume() {
  send({SIGCONT});
  if (suspended_ && hang_watch_) {
    hang_watch_->resume(*suspended_, Clock::now());
    if (wait_watch_) {
      wait_watch_->resume(*suspended_, Clock::now());
    }
    suspended_.reset();
  }
}

void Agent::watch_progress(Time now) {
  const bool idle = suspended_ || paused_ || next_pause_look_;
  if (idle || supervisor_->stopping() || !hang_watch_->enabled()) {
    return;
  }
  const std::vector<int> alive = supervisor_->alive();
  std::vector<HangWatch::Beat> beats;
  for (int each : alive) {
    const HeartbeatReader& heart =
        attempt_->ranks()[static_cast<size_t>(each)].heartbeat;
    beats.push_back({heart.joined(), heart.beats()});
  }
  if (hang_watch_->hangs(beats, now)) {
    detail_ = "no progress for " + describe_time(job_.options.hang_timeout) +
        " (--hang-timeout)";
    send(supervisor_->hang(StopReason::kHang, now));
    return;
  }
  std::vector<int> late;
  for (size_t each : hang_watch_->late(beats, now)) {
    late.push_back(alive[each]);
  }
  if (!late.empty()) {
    detail_ = name_ranks(ranks_of(late)) + " had formed no group after " +
        describe_time(job_.options.start_timeout) + " (--start-timeout)";
    send(supervisor_->hang(StopReason::kNotJoined, now));
  }
}

// Ranks may wait for one that has left, for long: until a timeout of theirs.
void Agent::watch_waits(Time now) {
  if (!wait_watch_ || suspended_ || supervisor_->stopping()) {
    return;
  }
  std::vector<int> gone;
  std::vector<std::string> calls;
  std::vector<std::optional<uint64_t>> beats;
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (departed(ends_[i])) {
      gone.push_back(ends_[i].rank);
    }
    const HeartbeatReader& heart = attempt_->ranks()[i].heartbeat;
    const bool alive = ends_[i].state.alive();
    calls.push_back(alive ? call_of(heart.activity()) : "");
    beats.emplace_back();
    if (!calls.back().empty()) {
      beats.back() = heart.beats();
    }
  }
  if (gone.empty()) {
    return;
  }
  std::map<std::string, std::vector<int>> callers;
  for (size_t each : wait_watch_->waiting(beats, now)) {
    callers[calls[each]].push_back(attempt_->ranks()[each].rank);
  }
  if (!callers.empty()) {
    say_who_waits(callers, gone);
    wait_watch_.reset();
  }
}

} // namespace ddp
