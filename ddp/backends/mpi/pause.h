#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ddp::backends::mpi {

/// The pauses between two looks at operations that are under way: none at
/// first, so that short ones end without delay, then growing ones, so that
/// ranks that share cores do not take them from each other.
class Pause {
 public:
  /// `patience`: how long there are none.
  explicit Pause(std::chrono::microseconds patience) : patience_(patience) {}

  void operator()() {
    const auto waited = Clock::now() - begin_;
    if (waited < patience_) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::min<Clock::duration>(
          waited / 10, std::chrono::microseconds(50)));
    }
  }

  void reset() {
    begin_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::microseconds patience_;
  Clock::time_point begin_ = Clock::now();
};

} // namespace ddp::backends::mpi
