#pragma once

#include <common/file_descriptor.h>

#include <chrono>

namespace ddp::backends {

/// Wakes a thread at once or later. To set it costs no change of thread, which
/// to wake one at once does.
class Timer {
 public:
  /// Throws `c10::Error` if the process may open no more files.
  Timer();

  /// Lets `wait` return after `delay`; what was set before no longer holds.
  void set(std::chrono::nanoseconds delay);

  /// Returns at the time that is set, or has passed since the last return.
  void wait();

 private:
  const FileDescriptor timer_;
};

} // namespace ddp::backends
