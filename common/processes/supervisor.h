#pragma once

#include <optional>
#include <vector>

#include <common/processes/rank_state.h>

namespace ddp {

/// The reason why the ranks of an attempt are being ended.
enum class StopReason {
  kNone, // the ranks end by themselves
  kFailure, // a rank failed
  kSignal, // the launcher received a signal to end them
  kNotExecuted, // the program could not be executed
  kInfrastructure, // the store or the agent failed
  kHang, // no progress
  kOtherNode, // the reason is on another node
};

/// Decides when the ranks of one attempt are stopped. Each event's function
/// returns the signals to send to all living ranks, in order. Uses neither
/// processes nor a clock.
class Supervisor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Signals = std::vector<int>;

  /// After a failure that another rank caused, the time that this other rank
  /// may take to end by itself, so that its reason can be reported.
  static constexpr std::chrono::milliseconds kSettleTime{500};
  /// The time that hanging ranks may take to write their stacks.
  static constexpr std::chrono::milliseconds kStackTime{5000};

  Supervisor(int ranks, std::chrono::milliseconds grace, Time start);

  /// A rank has ended. `is_consequence`: the rank reports another rank's
  /// failure as the reason.
  Signals rank_ended(int rank, int wait_status, bool is_consequence, Time now);
  /// The launcher received a signal that ends the job: the first signal is
  /// forwarded, unless the ranks were already stopped by the same signal; the
  /// second one kills. The signal is recorded even if no rank is alive.
  Signals asked_to_end(int signal, Time now);
  /// Stops these ranks because another node's ranks are being stopped.
  Signals stop_with_others(Time now);
  /// The ranks make no progress; makes them write their stacks.
  Signals hang(Time now);
  /// The attempt cannot continue.
  Signals kill_all(StopReason reason);
  /// The time of deadline() has been reached.
  Signals deadline_passed(Time now);

  /// The time at which to call deadline_passed(); none if the attempt waits
  /// only for ranks.
  std::optional<Time> deadline() const {
    return deadline_;
  }

  bool running() const;
  bool stopping() const {
    return reason_ != StopReason::kNone;
  }
  StopReason reason() const {
    return reason_;
  }
  /// The first signal that asked the launcher to end the job; 0 for none.
  int signal() const {
    return signal_;
  }
  const std::vector<RankState>& ranks() const {
    return ranks_;
  }
  /// The ranks that have ended, in the order of their ends.
  const std::vector<int>& ended() const {
    return ended_;
  }
  /// The living ranks.
  std::vector<int> alive() const;

 private:
  Signals stop(int signal, Time now);
  Signals kill();

  std::vector<RankState> ranks_;
  std::vector<int> ended_;
  std::chrono::milliseconds grace_;
  Time start_;
  StopReason reason_ = StopReason::kNone;
  int signal_ = 0;
  bool asked_ = false; // the signal to stop was sent to the ranks
  int stop_signal_ = 0; // that signal; 0 for none
  std::optional<Time> deadline_;
};

} // namespace ddp
