#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ddp::backends::mpi {

/// The pauses between polls of running operations. At first the thread does not
/// pause, since yielding the core takes as long as a small operation. The
/// thread then yields, and later sleeps for growing times, so that ranks on
/// shared cores do not block each other.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts to yield after `spin`, and to sleep after `patience`.
  Backoff(std::chrono::microseconds spin, std::chrono::microseconds patience)
      : spin_(spin), patience_(patience) {}

  void operator()(Clock::time_point now) {
    const auto waited = now - begin_;
    if (waited < spin_) {
      return;
    }
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
  std::chrono::microseconds spin_;
  std::chrono::microseconds patience_;
  Clock::time_point begin_ = Clock::now();
};

} // namespace ddp::backends::mpi
