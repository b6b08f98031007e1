#pragma once

#include <common/file_descriptor.h>

#include <chrono>

namespace ddp::backends {

/// Wakes a thread after a delay. `set` does not switch threads, whereas waking
/// a thread immediately does.
class Timer {
 public:
  /// Throws `c10::Error` if the process cannot open more files.
  Timer();

  /// Makes `wait` return after `delay`; replaces an earlier delay.
  void set(std::chrono::nanoseconds delay);

  /// Returns at the set time, or immediately if this time has passed since the
  /// last return.
  void wait();

 private:
  const FileDescriptor timer_;
};

} // namespace ddp::backends
