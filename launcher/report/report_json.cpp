#include <launcher/report/report.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <common/file_descriptor.h>
#include <common/scheduler/launch_error.h>
#include <launcher/cli/redaction.h>
#include <launcher/rendezvous/authentication.h>

namespace ddp {
namespace {

// The time limit for a reader that stalls.
constexpr int kWriteMilliseconds = 5000;

// Whether a new file may replace the file. Links, pipes and devices are not
// replaced.
bool is_replaceable(const std::string& path) {
  struct stat file {};
  return lstat(path.c_str(), &file) == 0 ? S_ISREG(file.st_mode)
                                         : errno == ENOENT;
}

// The output of this process that goes to a regular file, to which a link such
// as /dev/stdout can lead; -1 if none does.
int own_output(const struct stat& file) {
  struct stat own {};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (fstat(fd, &own) == 0 && own.st_dev == file.st_dev &&
        own.st_ino == file.st_ino) {
      return fd;
    }
  }
  return -1;
}

// Clears the regular file at `path`. If the file is an output of this process,
// keeps the contents and returns the output, else -1.
int clear_linked(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return -1;
  }
  const int output = own_output(file);
  if (output < 0) {
    truncate(path.c_str(), 0);
  }
  return output;
}

// Neither waits for a reader nor gets a controlling terminal.
FileDescriptor open_in_place(const std::string& path) {
  return FileDescriptor(open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
      S_IRUSR | S_IWUSR));
}

int write_in_place(const std::string& path, const std::string& text) {
  const int output = clear_linked(path);
  if (output >= 0) { // at the position of its other writers
    return write_all(output, text);
  }
  const FileDescriptor file = open_in_place(path);
  return file ? write_all(file.get(), text, kWriteMilliseconds) : errno;
}

int write_new_file(const std::string& path, const std::string& text) {
  const FileDescriptor file(open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
      S_IRUSR | S_IWUSR));
  if (!file) {
    return errno;
  }
  const int error = write_all(file.get(), text);
  return error != 0 || fsync(file.get()) == 0 ? error : errno;
}

// Whether the file may still be written in place: it is a mount itself, or only
// its folder is not writable.
bool is_permission_error(int error) {
  return error == EBUSY || error == EACCES || error == EPERM || error == EROFS;
}

[[noreturn]] void reject(const std::string& path, const std::string& why) {
  throw LaunchError(kExitUsage, "--report " + path + ": " + why);
}

using nlohmann::json;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

const char* outcome(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "succeeded";
    case StopReason::kSignal:
      return "stopped";
    case StopReason::kHang:
      return "timeout";
    case StopReason::kInfrastructure:
      return "infrastructure";
    case StopReason::kFailure:
    case StopReason::kNotExecuted:
    case StopReason::kOtherNode:
      break;
  }
  return "failed";
}

const char* kind_of_end(const RankState& state) {
  if (state.alive()) {
    return "running";
  }
  if (state.last_phase() != RankState::Phase::kRunning) {
    return "stopped by ddprun";
  }
  return WIFSIGNALED(state.wait_status()) ? "killed" : "exited";
}

json rank_json(const RankEnd& end) {
  const int status = end.state.wait_status();
  json value = {
      {"rank", end.rank},
      {"local_rank", end.local_rank},
      {"pid", end.pid},
      {"end", kind_of_end(end.state)},
      {"exit_code", exit_code_of(status)},
      {"signal", WIFSIGNALED(status) ? json(WTERMSIG(status)) : json()},
      {"duration_s", seconds(end.state.lifetime())},
      {"time_ns", end.time_ns},
      {"step", end.step ? json(*end.step) : json()},
      {"activity", end.activity},
      {"consequence", is_consequence(end)},
      {"stderr", end.last_lines}};
  value["message"] = end.error ? json(end.error->message) : json();
  value["stack"] = end.error ? json(end.error->stack) : json();
  return value;
}

// The rank that caused the failure.
json root_json(const JobReport& report) {
  const auto& index = report.blame ? report.blame->index : report.root;
  return index ? json(report.ranks.at(*index).rank) : json();
}

} // namespace

void prepare_report(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    reject(path, "is a folder");
  }
  const bool is_replaced = is_replaceable(path);
  if (is_replaced && unlink(path.c_str()) == 0) {
    return;
  }
  const bool is_new = access(path.c_str(), F_OK) != 0;
  const std::string written = is_new && is_replaced
      ? std::filesystem::absolute(path).parent_path().string()
      : path;
  const bool is_new_target = is_new && !is_replaced;
  const bool is_writable = is_new_target ? bool(open_in_place(path))
                                         : access(written.c_str(), W_OK) == 0;
  if (!is_writable) {
    reject(path, "cannot write to " + written + ": " + std::strerror(errno));
  }
  clear_linked(path);
}

int write_report_file(const std::string& path, const std::string& text) {
  if (!is_replaceable(path)) {
    return write_in_place(path, text);
  }
  // Agents of other hosts, which may share the folder, can have this pid.
  const std::string temporary = path + ".new-" + random_hex(8);
  int error = write_new_file(temporary, text);
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    unlink(temporary.c_str());
  }
  return is_permission_error(error) ? write_in_place(path, text) : error;
}

std::string report_json(const JobReport& report) {
  json value = {
      {"schema", 1},
      {"run_id", report.run_id},
      {"outcome", outcome(report.reason)},
      {"exit_code", report.exit_code},
      {"signal", report.signal != 0 ? json(report.signal) : json()},
      {"command", report.command},
      {"restarts", report.restarts},
      {"max_restarts", report.max_restarts},
      {"duration_s", seconds(report.duration)},
      {"detail", report.blame ? report.blame->text : report.detail},
      {"logs", report.folder}};
  value["root"] = root_json(report);
  value["nodes"] = json::array();
  for (const NodeInfo& each : report.nodes) {
    value["nodes"].push_back({{"host", each.host}, {"ranks", each.ranks}});
  }
  value["ranks"] = json::array();
  for (const RankEnd& each : report.ranks) {
    value["ranks"].push_back(rank_json(each));
  }
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

JobReport new_report(const LaunchOptions& options) {
  JobReport report;
  report.run_id = options.run_id;
  report.command = redacted_arguments(options.command);
  report.file = options.report;
  return report;
}

std::string write_report(const JobReport& report) {
  if (report.file.empty()) {
    return "";
  }
  const int error = write_report_file(report.file, report_json(report));
  return error == 0 ? ""
                    : "the report could not be written to " + report.file +
          ": " + std::strerror(error);
}

void write_error_report(
    const LaunchOptions& options,
    int exit_code,
    const std::string& error) {
  JobReport report = new_report(options);
  report.reason = StopReason::kNotExecuted;
  report.exit_code = exit_code;
  report.detail = error;
  write_report(report);
}

} // namespace ddp
