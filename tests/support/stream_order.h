#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ddp::test {

/// The guaranteed order of work on a device's streams. Work on the same memory
/// without a guaranteed order is a race, regardless of the order in this run.
/// Uses vector clocks, like a race detector for threads.
class StreamOrder {
 public:
  using StreamId = int64_t;
  /// The amount of each stream's work that precedes a point.
  using Point = std::map<StreamId, int64_t>;

  /// Memory that an operation reads or writes.
  struct Access {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool writes = false;
  };

  /// Records an operation on `stream`.
  void work(
      StreamId stream,
      const std::string& operation,
      const std::vector<Access>& accesses) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& own = clock(stream);
    const auto time = ++own[stream];
    for (const auto& access : accesses) {
      const Past now{access, stream, time, operation};
      for (const auto& past : past_) {
        check(past, now, own);
      }
      // Work that follows a write also follows all work before the write.
      past_.erase(
          std::remove_if(
              past_.begin(),
              past_.end(),
              [&](const Past& past) {
                return access.writes && covers(access, past.access) &&
                    includes(own, past.stream, past.time);
              }),
          past_.end());
      past_.push_back(now);
    }
  }

  /// The point that `stream` has reached, for an event.
  Point reached(StreamId stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return clock(stream);
  }

  /// The point that all streams have reached.
  Point reached() {
    const std::lock_guard<std::mutex> lock(mutex_);
    Point result;
    for (const auto& [stream, point] : clocks_) {
      advance(result, point);
    }
    return result;
  }

  /// Orders further work of `stream` after `point`.
  void wait(StreamId stream, const Point& point) {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance(clock(stream), point);
  }

  /// The host has waited for `point`; all further work follows this point.
  void wait_on_host(const Point& point) {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance(host_, point);
  }

  /// The memory was freed; its next owner starts without a history.
  void forget(uintptr_t begin, uintptr_t end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    past_.erase(
        std::remove_if(
            past_.begin(),
            past_.end(),
            [&](const Past& past) {
              return overlap(past.access, {begin, end, true});
            }),
        past_.end());
  }

  /// Returns the races so far, and forgets them.
  std::vector<std::string> take_races() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(races_, {});
  }

 private:
  struct Past {
    Access access;
    StreamId stream = 0;
    int64_t time = 0;
    std::string operation;
  };

  static bool overlap(const Access& a, const Access& b) {
    return a.begin < b.end && b.begin < a.end;
  }

  static bool covers(const Access& a, const Access& b) {
    return a.begin <= b.begin && b.end <= a.end;
  }

  static void advance(Point& clock, const Point& point) {
    for (const auto& [stream, time] : point) {
      clock[stream] = std::max(clock[stream], time);
    }
  }

  static bool includes(const Point& clock, StreamId stream, int64_t time) {
    const auto found = clock.find(stream);
    return found != clock.end() && found->second >= time;
  }

  Point& clock(StreamId stream) {
    auto& result = clocks_[stream];
    advance(result, host_);
    return result;
  }
  void check(const Past& past, const Past& now, const Point& clock) {
    if (overlap(past.access, now.access) &&
        (past.access.writes || now.access.writes) &&
        !includes(clock, past.stream, past.time)) {
      races_.push_back(
          now.operation + " on stream " + std::to_string(now.stream) +
          (now.access.writes ? " writes" : " reads") + " what " +
          past.operation + " on stream " + std::to_string(past.stream) +
          (past.access.writes ? " wrote" : " read") + ", in no certain order");
    }
  }

  std::mutex mutex_;
  std::map<StreamId, Point> clocks_;
  Point host_;
  std::vector<Past> past_;
  std::vector<std::string> races_;
};

} // namespace ddp::test
