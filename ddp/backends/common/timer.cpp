#include <ddp/backends/common/timer.h>

#include <ddp/internal/check.h>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddp::backends {

Timer::Timer() : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
  DDP_CHECK(
      timer_,
      "cannot create a timer: timerfd_create: {}",
      std::strerror(errno));
}

void Timer::set(std::chrono::nanoseconds delay) {
  using std::chrono::seconds;
  const auto whole = std::chrono::duration_cast<seconds>(delay);
  itimerspec time{};
  time.it_value.tv_sec = whole.count();
  // 0 would disarm the timer.
  time.it_value.tv_nsec =
      std::max<decltype(time.it_value.tv_nsec)>((delay - whole).count(), 1);
  timerfd_settime(timer_.get(), /*flags=*/0, &time, nullptr);
}

void Timer::wait() {
  uint64_t times = 0;
  while (read(timer_.get(), &times, sizeof(times)) < 0 && errno == EINTR) {
  }
}

} // namespace ddp::backends
