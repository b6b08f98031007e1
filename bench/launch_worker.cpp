// A rank that tells when its main() began, and leaves; or, where it is asked
// to, waits. No iostreams: they would cost more than some launchers do.
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <unistd.h>

#include <bench/launch_record.h>

int main() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const StartRecord record{getpid(), now.tv_sec * 1000000000LL + now.tv_nsec};
  const char* const started = std::getenv(kStartedPipe);
  const int pipe = started == nullptr ? -1 : open(started, O_WRONLY);
  if (write(pipe, &record, sizeof record) != sizeof record) {
    return 1;
  }
  const char* const hold = std::getenv(kHoldPipe);
  char end = 0;
  return hold != nullptr && read(open(hold, O_RDONLY), &end, 1) != 0;
}
