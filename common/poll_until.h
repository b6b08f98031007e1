#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

namespace ddp::detail {

/// The timeout of poll() and epoll_wait(): the milliseconds until `time`, at
/// most a day; -1 if `time` is empty.
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

/// Pauses that double from 0.1 ms up to `longest`.
class GrowingBackoff {
 public:
  explicit GrowingBackoff(std::chrono::milliseconds longest)
      : longest_(longest) {}

  /// The next pause.
  std::chrono::microseconds next() {
    return std::exchange(pause_, std::min(2 * pause_, longest_));
  }
  /// Restarts with the shortest pause.
  void reset() {
    pause_ = kShortest;
  }

 private:
  static constexpr std::chrono::microseconds kShortest{100};
  std::chrono::microseconds longest_;
  std::chrono::microseconds pause_ = kShortest;
};

/// Calls `done` between pauses that grow up to `longest`. Returns whether
/// `done` returned true before `end`.
template <typename Done>
bool poll_until(
    std::chrono::steady_clock::time_point end,
    std::chrono::milliseconds longest,
    const Done& done) {
  for (GrowingBackoff pause(longest); !done();) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) {
      return false;
    }
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(pause.next(), left));
  }
  return true;
}

/// Like poll_until(), for at most `time`.
template <typename Done>
bool poll_for(
    std::chrono::milliseconds time,
    std::chrono::milliseconds longest,
    const Done& done) {
  return poll_until(std::chrono::steady_clock::now() + time, longest, done);
}

} // namespace ddp::detail
