#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ddp::test {

/// What is certain of the order in which streams of a device work, and which
/// work on the same memory has no certain order: a race, whatever the order was
/// this time. Vector clocks, as in a race detector for threads.
class StreamOrder {
 public:
  using StreamId = int64_t;
  /// How much of each stream's work comes before some point.
  using Point = std::map<StreamId, int64_t>;

  /// Memory that an operation reads or writes.
  struct Access {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool writes = false;
  };

  /// An operation on `stream`.
  void work(
      StreamId stream,
      const std::string& operation,
      const std::vector<Access>& accesses);

  /// The point that `stream` has come to, for an event.
  Point reached(StreamId stream);

  /// Further work of `stream` comes after `point`.
  void wait(StreamId stream, const Point& point);

  /// The host has waited for `point`: all further work comes after it.
  void wait_on_host(const Point& point);

  /// What is there was freed: its next owner starts anew.
  void forget(uintptr_t begin, uintptr_t end);

  /// The races so far; forgets them.
  std::vector<std::string> take_races();

 private:
  struct Past {
    Access access;
    StreamId stream = 0;
    int64_t time = 0;
    std::string operation;
  };

  Point& clock(StreamId stream);
  void check(const Past& past, const Past& now, const Point& clock);

  std::mutex mutex_;
  std::map<StreamId, Point> clocks_;
  Point host_;
  std::vector<Past> past_;
  std::vector<std::string> races_;
};

} // namespace ddp::test
