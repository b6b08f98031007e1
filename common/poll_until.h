#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace ddp::detail {

/// The timeout of poll() and epoll_wait(): the milliseconds until `time`, at
/// most a day; -1 if there is no time.
inline int milliseconds_until(
    const std::optional<std::chrono::steady_clock::time_point>& time) {
  if (!time) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      *time - std::chrono::steady_clock::now());
  constexpr int64_t day = 24 * 3600 * 1000;
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, day));
}

/// Calls `done` at intervals that double from a millisecond up to `longest`.
/// Returns whether it returned true before `end`.
template <typename Done>
bool poll_until(
    std::chrono::steady_clock::time_point end,
    std::chrono::milliseconds longest,
    const Done& done) {
  for (auto interval = std::chrono::milliseconds(1); !done();
       interval = std::min(2 * interval, longest)) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(interval);
  }
  return true;
}

/// As above, for at most `time`.
template <typename Done>
bool poll_for(
    std::chrono::milliseconds time,
    std::chrono::milliseconds longest,
    const Done& done) {
  return poll_until(std::chrono::steady_clock::now() + time, longest, done);
}

} // namespace ddp::detail
