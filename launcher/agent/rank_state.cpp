#include <launcher/agent/rank_state.h>

namespace ddp {

void RankState::asked_to_stop() {
  if (phase_ == Phase::kRunning) {
    phase_ = Phase::kStopping;
  }
}

void RankState::killed() {
  if (alive()) {
    phase_ = Phase::kKilled;
  }
}

void RankState::ended(int wait_status, std::chrono::nanoseconds after_start) {
  if (!alive()) {
    return;
  }
  last_phase_ = phase_;
  phase_ = Phase::kEnded;
  wait_status_ = wait_status;
  lifetime_ = after_start;
}

bool RankState::failed() const {
  return !alive() && wait_status_ != 0 && last_phase_ == Phase::kRunning;
}

} // namespace ddp
