#pragma once

#include <chrono>
#include <thread>

namespace ddp::detail {

/// Asks `done` every `interval`: whether it held before `end` had passed.
template <typename Done>
bool poll_until(
    std::chrono::steady_clock::time_point end,
    std::chrono::milliseconds interval,
    const Done& done) {
  for (; !done(); std::this_thread::sleep_for(interval)) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
  }
  return true;
}

/// As above, for as long as `time`.
template <typename Done>
bool poll_for(
    std::chrono::milliseconds time,
    std::chrono::milliseconds interval,
    const Done& done) {
  return poll_until(std::chrono::steady_clock::now() + time, interval, done);
}

} // namespace ddp::detail
