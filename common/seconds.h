#pragma once

#include <algorithm>
#include <chrono>

namespace ddp::backends {

/// For messages.
inline double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

/// So much that it can be added to the time of day, also several times, as gloo
/// does: 10 years.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds time) {
  return std::min<std::chrono::milliseconds>(
      time, std::chrono::hours(24 * 365 * 10));
}

} // namespace ddp::backends
