#pragma once

#include <optional>
#include <vector>

#include <common/processes/rank_state.h>

namespace ddp {

/// Why the ranks of an attempt are being ended.
enum class StopReason {
  kNone, // they end by themselves
  kFailure, // a rank failed
  kSignal, // their launcher was asked to end them
  kNotExecuted, // the program could not be executed
  kInfrastructure, // what ddprun needs besides: the store, the agent
  kHang, // no progress
  kOtherNode, // something of another node
};

/// Decides what becomes of the ranks of one attempt. It is told what happened
/// and answers which signals all living ranks are to be sent, in that order.
/// Knows neither processes nor a clock.
class Supervisor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Signals = std::vector<int>;

  /// How long after a failure that is some other rank's doing that one has to
  /// end by itself, so that it is seen how.
  static constexpr std::chrono::milliseconds kSettleTime{500};
  /// How long ranks that are to say where they hang have for it.
  static constexpr std::chrono::milliseconds kStackTime{5000};

  Supervisor(int ranks, std::chrono::milliseconds grace, Time start);

  /// A rank has ended. `is_consequence`: it says that another one's failure
  /// was the reason.
  Signals rank_ended(int rank, int wait_status, bool is_consequence, Time now);
  /// The launcher was sent a signal that ends the job: the first is passed on,
  /// the second kills. Noted also if no rank lives any more.
  Signals asked_to_end(int signal, Time now);
  /// Another node's ranks are being stopped, and so are these.
  Signals stop_with_others(Time now);
  /// The ranks make no progress: they are made to say where they are.
  Signals hang(Time now);
  /// The attempt cannot continue.
  Signals kill_all(StopReason reason);
  /// The time of deadline() has come.
  Signals deadline_passed(Time now);

  /// When deadline_passed() wants to be called; none while there is nothing to
  /// wait for but the ranks.
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
  /// The first signal by which the launcher was asked to end the job; 0 for
  /// none.
  int signal() const {
    return signal_;
  }
  const std::vector<RankState>& ranks() const {
    return ranks_;
  }
  /// In the order in which they ended.
  const std::vector<int>& ended() const {
    return ended_;
  }
  /// Living ranks.
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
  bool asked_ = false; // the ranks were sent the signal to stop
  std::optional<Time> deadline_;
};

} // namespace ddp
