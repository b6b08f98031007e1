// A rank that reports when its main() began. If DDP_BENCH_HOLD_PIPE is set, it
// then waits until the pipe's other end is closed. It uses no iostreams, which
// would cost more than some launchers.
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <unistd.h>

/// The record that launch.py reads.
struct StartRecord {
  pid_t pid;
  long long nanoseconds; // CLOCK_MONOTONIC
};

int main() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const StartRecord record{getpid(), now.tv_sec * 1000000000LL + now.tv_nsec};
  const char* const started = std::getenv("DDP_BENCH_STARTED_PIPE");
  const int pipe = started == nullptr ? -1 : open(started, O_WRONLY);
  if (write(pipe, &record, sizeof record) != sizeof record) {
    return 1;
  }
  const char* const hold = std::getenv("DDP_BENCH_HOLD_PIPE");
  char end = 0;
  return hold != nullptr && read(open(hold, O_RDONLY), &end, 1) != 0;
}
