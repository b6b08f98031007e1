#include <ddp/spawn/spawned_worker.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace ddp::detail {
namespace {

std::string program_file() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

/// Why the program could not be executed again; 0 where it was.
int exec_error(const FileDescriptor& report) {
  struct stat status {};
  int error = 0;
  const bool there = fstat(report.get(), &status) == 0 &&
      status.st_size == sizeof(error) &&
      pread(report.get(), &error, sizeof(error), 0) == sizeof(error);
  return there ? error : 0;
}

std::string indented(const std::string& lines) {
  std::string result;
  for (size_t begin = 0; begin < lines.size();) {
    const auto end = std::min(lines.find('\n', begin), lines.size());
    result += "\n  " + lines.substr(begin, end - begin);
    begin = end + 1;
  }
  return result;
}

} // namespace

FileDescriptor make_report_file() {
  const FileDescriptor file(check_call(
      memfd_create("ddp-report", MFD_CLOEXEC), "cannot make a report's file"));
  // Not where a program that began without standard streams has none.
  return FileDescriptor(check_call(
      fcntl(file.get(), F_DUPFD_CLOEXEC, 3), "cannot make a report's file"));
}

void SpawnedWorker::reap() {
  int value = 0;
  const auto result = ended ? 0 : waitpid(pid, &value, WNOHANG);
  if (result == 0 || (result < 0 && errno != ECHILD)) {
    return;
  }
  ended = true;
  if (result == pid) {
    status = value;
  }
  end_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
               .count();
  error = read_error_file(
      "/proc/self/fd/" + std::to_string(report.get()), program_file());
}

bool SpawnedWorker::came_to_its_call() const {
  char first = 0;
  return pread(report.get(), &first, 1, 0) == 1 && first == '\n';
}

bool SpawnedWorker::failed() const {
  const bool well = status == 0 && came_to_its_call();
  return ended && !well && (!stopped || error);
}

bool SpawnedWorker::is_consequence() const {
  return error && (error->is_consequence || tells_of_another(error->message));
}

int64_t SpawnedWorker::failure_ns() const {
  return error ? std::min(error->time_ns, end_ns) : end_ns;
}

std::string SpawnedWorker::describe_end() const {
  if (!status) {
    return "has ended, but how is not known: something else in this program "
           "waits for all child processes";
  }
  if (const int reason = exec_error(report)) {
    return std::string("could not execute this program again: ") +
        std::strerror(reason);
  }
  std::string text;
  if (WIFSIGNALED(*status)) {
    const int number = WTERMSIG(*status);
    text = "was killed by signal " + std::to_string(number) + " (" +
        strsignal(number) + ")";
  } else if (error) {
    text = "failed";
  } else {
    text = "ended with exit code " + std::to_string(WEXITSTATUS(*status));
  }
  if (!came_to_its_call()) {
    text +=
        " before its spawn call: main() must come to the same call with "
        "the same arguments in each process";
  }
  if (error) {
    text += ": " + error->message;
    if (WIFSIGNALED(*status)) {
      text += indented(error->stack);
    }
  }
  return text;
}

} // namespace ddp::detail
