#pragma once

#include <algorithm>
#include <chrono>

namespace ddp::backends {

/// A time in seconds, for messages.
inline double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

/// `time`, but at most 10 years, so that it can be added to the time of day
/// without overflow, even several times, as gloo does.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds time) {
  return std::min<std::chrono::milliseconds>(
      time, std::chrono::hours(24 * 365 * 10));
}

} // namespace ddp::backends
