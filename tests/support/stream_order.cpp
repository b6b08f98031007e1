#include <tests/support/stream_order.h>

#include <algorithm>
#include <utility>

namespace ddp::test {
namespace {

using Access = StreamOrder::Access;
using Point = StreamOrder::Point;

bool overlap(const Access& a, const Access& b) {
  return a.begin < b.end && b.begin < a.end;
}

bool covers(const Access& a, const Access& b) {
  return a.begin <= b.begin && b.end <= a.end;
}

void advance(Point& clock, const Point& point) {
  for (const auto& [stream, time] : point) {
    clock[stream] = std::max(clock[stream], time);
  }
}

bool includes(const Point& clock, StreamOrder::StreamId stream, int64_t time) {
  const auto found = clock.find(stream);
  return found != clock.end() && found->second >= time;
}

} // namespace

Point& StreamOrder::clock(StreamId stream) {
  auto& result = clocks_[stream];
  advance(result, host_);
  return result;
}

void StreamOrder::check(const Past& past, const Past& now, const Point& clock) {
  if (overlap(past.access, now.access) &&
      (past.access.writes || now.access.writes) &&
      !includes(clock, past.stream, past.time)) {
    races_.push_back(
        now.operation + " on stream " + std::to_string(now.stream) +
        (now.access.writes ? " writes" : " reads") + " what " + past.operation +
        " on stream " + std::to_string(past.stream) +
        (past.access.writes ? " wrote" : " read") + ", in no certain order");
  }
}

void StreamOrder::work(
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
    // What comes after a write comes after what came before it.
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

Point StreamOrder::reached(StreamId stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clock(stream);
}

void StreamOrder::wait(StreamId stream, const Point& point) {
  const std::lock_guard<std::mutex> lock(mutex_);
  advance(clock(stream), point);
}

void StreamOrder::wait_on_host(const Point& point) {
  const std::lock_guard<std::mutex> lock(mutex_);
  advance(host_, point);
}

void StreamOrder::forget(uintptr_t begin, uintptr_t end) {
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

std::vector<std::string> StreamOrder::take_races() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(races_, {});
}

} // namespace ddp::test
