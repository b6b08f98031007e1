// Preloaded into a process, sets its wall clock CLOCK_SHIFT seconds ahead (or,
// below 0, behind). If CLOCK_SHIFT is a path, the file PATH-HOST has the
// seconds, and may change at any time. Monotonic clocks are unchanged.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace {

const char* map_file_of_host(const std::string& path) {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  const int file = open((path + '-' + host).c_str(), O_RDONLY | O_CLOEXEC);
  void* const text = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return text == MAP_FAILED ? "0" : static_cast<const char*>(text);
}

time_t shift() {
  // Other libraries' constructors may read the time, so this library has none.
  const char* seconds = std::getenv("CLOCK_SHIFT");
  if (seconds != nullptr && *seconds == '/') {
    static const char* const mapped = map_file_of_host(seconds);
    seconds = mapped;
  }
  return seconds == nullptr ? 0 : std::atol(seconds);
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += shift();
  }
  return result;
}

int gettimeofday(timeval* __restrict now, void* __restrict zone) noexcept {
  static auto* const real = next<int(timeval*, void*)>("gettimeofday");
  const int result = real(now, zone);
  if (result == 0) {
    now->tv_sec += shift();
  }
  return result;
}

// LibTorch waits until times of this clock, which the kernel does not shift.
int pthread_cond_timedwait(
    pthread_cond_t* condition,
    pthread_mutex_t* mutex,
    const timespec* until) {
  using Wait = decltype(pthread_cond_timedwait);
  static auto* const real = reinterpret_cast<Wait*>(
      dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"));
  static auto* const other = next<Wait>("pthread_cond_timedwait");
  timespec shifted = *until;
  if (shifted.tv_sec > 1000000000) { // else, of a monotonic clock
    shifted.tv_sec -= shift();
  }
  return (real != nullptr ? real : other)(condition, mutex, &shifted);
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) {
    *result = now.tv_sec;
  }
  return now.tv_sec;
}
}
