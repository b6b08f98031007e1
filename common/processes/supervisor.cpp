#include <common/processes/supervisor.h>

#include <algorithm>
#include <csignal>

namespace ddp {

Supervisor::Supervisor(int ranks, std::chrono::milliseconds grace, Time start)
    : ranks_(static_cast<size_t>(ranks)), grace_(grace), start_(start) {}

Supervisor::Signals Supervisor::rank_ended(
    int rank,
    int wait_status,
    bool is_consequence,
    Time now) {
  RankState& state = ranks_.at(static_cast<size_t>(rank));
  if (!state.alive()) {
    return {};
  }
  state.ended(wait_status, now - start_);
  ended_.push_back(rank);
  if (!running()) {
    deadline_.reset();
  }
  if (!state.failed() || asked_ || !running()) {
    if (state.failed() && !stopping()) {
      reason_ = StopReason::kFailure;
    }
    return {};
  }
  const bool first = !stopping();
  if (first) {
    reason_ = StopReason::kFailure;
  }
  if (is_consequence) {
    if (first) {
      deadline_ = now + kSettleTime;
    }
    return {};
  }
  return stop(SIGTERM, now);
}

Supervisor::Signals Supervisor::asked_to_end(int signal, Time now) {
  const bool again = signal_ != 0;
  if (!again) {
    signal_ = signal;
  }
  if (!running()) {
    return {};
  }
  if (!stopping()) {
    reason_ = StopReason::kSignal;
  }
  if (again) {
    return kill();
  }
  if (!asked_) {
    return stop(signal, now);
  }
  // Ranks that were already asked to stop keep their deadline. The same signal
  // again would end ranks that save.
  return signal == stop_signal_ ? Signals{} : Signals{signal, SIGCONT};
}

Supervisor::Signals Supervisor::stop_with_others(Time now) {
  if (asked_ || !running()) {
    return {};
  }
  if (!stopping()) {
    reason_ = StopReason::kOtherNode;
  }
  return stop(SIGTERM, now);
}

Supervisor::Signals Supervisor::hang(Time now) {
  if (stopping()) {
    return {};
  }
  reason_ = StopReason::kHang;
  asked_ = true;
  deadline_ = now + kStackTime;
  for (RankState& each : ranks_) {
    each.asked_to_stop();
  }
  return {SIGABRT, SIGCONT};
}

Supervisor::Signals Supervisor::kill_all(StopReason reason) {
  if (!stopping()) {
    reason_ = reason;
  }
  return kill();
}

Supervisor::Signals Supervisor::deadline_passed(Time now) {
  deadline_.reset();
  if (!running()) {
    return {};
  }
  return asked_ ? kill() : stop(SIGTERM, now);
}

Supervisor::Signals Supervisor::stop(int signal, Time now) {
  asked_ = true;
  stop_signal_ = signal;
  deadline_ = now + grace_;
  for (RankState& each : ranks_) {
    each.asked_to_stop();
  }
  return {signal, SIGCONT}; // a stopped process handles no other signal
}

Supervisor::Signals Supervisor::kill() {
  asked_ = true;
  deadline_.reset();
  for (RankState& each : ranks_) {
    each.killed();
  }
  return {SIGKILL};
}

bool Supervisor::running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& each) {
    return each.alive();
  });
}

std::vector<int> Supervisor::alive() const {
  std::vector<int> found;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].alive()) {
      found.push_back(static_cast<int>(i));
    }
  }
  return found;
}

} // namespace ddp
