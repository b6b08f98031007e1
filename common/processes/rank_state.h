#pragma once

#include <chrono>

namespace ddp {

/// The launcher's record of the state of one rank's process. Records events,
/// but takes no action:
///
///     running --asked--> stopping --killed--> killed
///        \____________________\__________________\____ended---> ended
class RankState {
 public:
  enum class Phase { kRunning, kStopping, kKilled, kEnded };

  Phase phase() const {
    return phase_;
  }
  bool alive() const {
    return phase_ != Phase::kEnded;
  }

  void asked_to_stop() {
    if (phase_ == Phase::kRunning) {
      phase_ = Phase::kStopping;
    }
  }
  void killed() {
    if (alive()) {
      phase_ = Phase::kKilled;
    }
  }
  /// `wait_status` has waitpid's encoding.
  void ended(int wait_status, std::chrono::nanoseconds after_start) {
    if (alive()) {
      last_phase_ = phase_;
      phase_ = Phase::kEnded;
      wait_status_ = wait_status;
      lifetime_ = after_start;
    }
  }

  int wait_status() const {
    return wait_status_;
  }
  /// The time from the start of the attempt to the end of the rank.
  std::chrono::nanoseconds lifetime() const {
    return lifetime_;
  }
  /// Whether the rank ended before it was asked to stop, and not with code 0.
  bool failed() const {
    return !alive() && wait_status_ != 0 && last_phase_ == Phase::kRunning;
  }
  /// The phase of the rank when it ended.
  Phase last_phase() const {
    return last_phase_;
  }

 private:
  Phase phase_ = Phase::kRunning;
  Phase last_phase_ = Phase::kRunning;
  int wait_status_ = 0;
  std::chrono::nanoseconds lifetime_{0};
};

} // namespace ddp
