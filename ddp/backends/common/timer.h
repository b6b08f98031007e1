#pragma once

#include <common/file_descriptor.h>

#include <chrono>

namespace ddp::backends {

/// Wakes a thread after a delay. Setting a delay does not switch threads;
/// waking a thread at once does.
class Timer {
 public:
  /// Throws `c10::Error` if the process cannot open more files.
  Timer();

  /// Makes `wait` return after `delay`; replaces an earlier setting.
  void set(std::chrono::nanoseconds delay);

  /// Returns at the set time; at once if that has passed since the last return.
  void wait();

 private:
  const FileDescriptor timer_;
};

} // namespace ddp::backends
