#include <ddp/detail/error_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddp::detail {
namespace {

// A signal handler reaches no more than what is global, and may not read the
// environment.
struct ErrorFile {
  pid_t owner = 0;
  char path[PATH_MAX] = "";
  /// Where it is written before it gets its name.
  char draft[PATH_MAX] = "";
  char rank[16] = "";
};
ErrorFile file;

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto count = write(descriptor, text.data(), text.size());
    if (count <= 0) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

} // namespace

bool find_error_file() {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path || std::strlen(path) + 8 > sizeof(file.draft)) {
    return false;
  }
  const char* rank = std::getenv("RANK");
  std::snprintf(file.path, sizeof(file.path), "%s", path);
  std::snprintf(file.draft, sizeof(file.draft), "%s.part", path);
  std::snprintf(file.rank, sizeof(file.rank), "%s", rank ? rank : "");
  file.owner = getpid();
  return true;
}

const char* launched_rank() {
  return file.rank;
}

bool has_error_report() {
  struct stat status {};
  return stat(file.path, &status) == 0 && status.st_size > 0;
}

void write_error_report(std::string_view text) {
  struct stat status {};
  if (file.owner != getpid() ||
      (stat(file.path, &status) == 0 && !S_ISREG(status.st_mode))) {
    return;
  }
  const int descriptor =
      open(file.draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return;
  }
  const bool complete = write_all(descriptor, text);
  close(descriptor);
  if (!complete || rename(file.draft, file.path) != 0) {
    unlink(file.draft);
  }
}

} // namespace ddp::detail
