#include <ddp/failure/error_file.h>

#include <common/file_descriptor.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddp::detail {
namespace {

// Global, since a signal handler can use only global data and may not read the
// environment.
struct OwnErrorFile {
  pid_t owner = 0;
  char path[PATH_MAX] = "";
  /// The path of the file before it is renamed to `path`.
  char draft[PATH_MAX] = "";
  char rank[16] = "";
  /// An open file instead of a path; -1 for none.
  int descriptor = -1;
  off_t begin = 0;
  std::atomic<bool> written{false};
};
OwnErrorFile file;

void note_process() {
  const char* rank = std::getenv("RANK");
  std::snprintf(file.rank, sizeof(file.rank), "%s", rank ? rank : "");
  file.owner = getpid();
}

void write_open_file(std::string_view text) {
  if (ftruncate(file.descriptor, file.begin) == 0 &&
      lseek(file.descriptor, file.begin, SEEK_SET) == file.begin) {
    file.written = write_all(file.descriptor, text) == 0;
  }
}

} // namespace

bool find_error_file() {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path || std::strlen(path) + 8 > sizeof(file.draft)) {
    return false;
  }
  std::snprintf(file.path, sizeof(file.path), "%s", path);
  std::snprintf(file.draft, sizeof(file.draft), "%s.part", path);
  note_process();
  return true;
}

void use_error_file(int descriptor) {
  file.begin = lseek(descriptor, 0, SEEK_END);
  file.descriptor = descriptor;
  note_process();
}

const char* launched_rank() {
  return file.rank;
}

bool has_error_report() {
  struct stat status {};
  return file.written || (stat(file.path, &status) == 0 && status.st_size > 0);
}

void write_error_report(std::string_view text) {
  struct stat status {};
  if (file.owner == getpid() && file.descriptor >= 0) {
    write_open_file(text);
    return;
  }
  if (file.owner != getpid() ||
      (stat(file.path, &status) == 0 && !S_ISREG(status.st_mode))) {
    return;
  }
  const int descriptor =
      open(file.draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return;
  }
  const bool complete = write_all(descriptor, text) == 0;
  close(descriptor);
  if (!complete || rename(file.draft, file.path) != 0) {
    unlink(file.draft);
  }
}

} // namespace ddp::detail
