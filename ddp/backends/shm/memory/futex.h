#pragma once

#include <ddp/backends/shm/memory/control.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace ddp::backends::shm {

/// Sleeps until `raise` is called, for at most `time`; not at all if the value
/// is not `seen` any more.
inline void sleep_on(
    Counter& counter,
    uint32_t seen,
    std::chrono::nanoseconds time) {
  using std::chrono::seconds;
  const auto whole = std::chrono::duration_cast<seconds>(time);
  timespec limit{};
  limit.tv_sec = whole.count();
  limit.tv_nsec = (time - whole).count();
  // In this order, and `raise` in the other: one of the two sees the other.
  counter.sleepers.fetch_add(1);
  if (counter.value.load() == seen) {
    syscall(SYS_futex, &counter.value, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  counter.sleepers.fetch_sub(1);
}

/// Adds one and wakes those who wait for it.
inline void raise(Counter& counter) {
  counter.value.fetch_add(1);
  if (counter.sleepers.load() > 0) {
    syscall(
        SYS_futex, &counter.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

} // namespace ddp::backends::shm
