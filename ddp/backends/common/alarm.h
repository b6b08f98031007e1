#pragma once

#include <chrono>

namespace ddp::backends {

/// Wakes a thread at once or later. To set it costs no change of thread, which
/// to wake one at once does.
class Alarm {
 public:
  /// Throws `c10::Error` where the process may open no more files.
  Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm();

  /// Lets `wait` return after `delay`; what was set before no longer holds.
  void set(std::chrono::nanoseconds delay);

  /// Returns at the time that is set, or has passed since the last return.
  void wait();

 private:
  const int timer_;
};

} // namespace ddp::backends
