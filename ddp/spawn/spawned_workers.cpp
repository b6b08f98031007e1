#include <ddp/spawn/spawned_workers.h>

#include <common/text.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace ddp::detail {
namespace {

// A handler can use only global data.
std::atomic<int> pipe_end{-1};

void on_signal(int number, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const int signal = info->si_code > 0 ? -number : number;
  // If the pipe is full, it has enough signals.
  [[maybe_unused]] const auto size = write(pipe_end, &signal, sizeof(signal));
  errno = error;
}

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// `timeout` sends a signal to this process and to its process group.
constexpr milliseconds kSameRequest(2000);
// The polling interval if no descriptor reports a process's end.
constexpr milliseconds kLookTime(20);
constexpr milliseconds kLongestWait = std::chrono::hours(1);
// Not from `waitpid`: the process has not reached its call, or other code has
// waited for it.
constexpr int kBeforeItsCall = 1 << 16;
constexpr int kNotKnown = -1;

bool ends_program(int signal) {
  return signal != SIGUSR1 && signal != SIGUSR2;
}

std::string program_file() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

bool came_to_its_call(const FileDescriptor& report) {
  char first = 0;
  return pread(report.get(), &first, 1, 0) == 1 && first == '\n';
}

/// Why the program could not be executed again; 0 if it was.
int exec_error(const FileDescriptor& report) {
  int words[2] = {};
  const auto size = pread(report.get(), words, sizeof(words), 0);
  return size == sizeof(words[0]) ? words[0] : 0;
}

/// "failed: std::runtime_error: no data", "was killed by signal 9 (Killed)".
std::string describe(const RankEnd& end, const FileDescriptor& report) {
  const int status = end.state.wait_status();
  if (status == kNotKnown) {
    return "has ended with an unknown status: other code in this program waits "
           "for all child processes";
  }
  if (const int reason = exec_error(report)) {
    return std::string("could not execute this program again: ") +
        std::strerror(reason);
  }
  std::string text = WIFSIGNALED(status) ? describe_end(status)
      : end.error
      ? "failed"
      : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  if (status & kBeforeItsCall) {
    text +=
        " before its spawn call: main() must reach the same call with the same "
        "arguments in each process, where earlier calls do not throw, even if "
        "they failed";
  }
  if (end.error) {
    text += ": " + end.error->message;
  }
  if (end.error && WIFSIGNALED(status)) {
    for (const auto& line : split_lines(end.error->stack)) {
      text += "\n  " + line;
    }
  }
  return text;
}

} // namespace

PassedSignals::PassedSignals() : pipe_(make_pipe()) {
  for (auto* end : {&pipe_.read_end, &pipe_.write_end}) {
    *end = above_standard_streams(std::move(*end)); // no output is a signal
    check_call(fcntl(end->get(), F_SETFL, O_NONBLOCK), "cannot set up a pipe");
  }
  pipe_end = pipe_.write_end.get();
  struct sigaction passed {};
  passed.sa_sigaction = on_signal;
  passed.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL) {
      sigaction(number, &passed, &before_[number]);
    }
  }
  struct sigaction child {};
  sigaction(SIGCHLD, nullptr, &child);
  if (child.sa_handler == SIG_IGN || (child.sa_flags & SA_NOCLDWAIT)) {
    before_[SIGCHLD] = child;
    std::signal(SIGCHLD, SIG_DFL);
  }
}

PassedSignals::~PassedSignals() {
  for (const auto& [number, before] : before_) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    if (number == SIGCHLD ? now.sa_handler == SIG_DFL
                          : now.sa_sigaction == on_signal) {
      sigaction(number, &before, nullptr);
    }
  }
  pipe_end = -1;
}

int PassedSignals::next() const {
  int signal = 0;
  const auto size = ::read(descriptor(), &signal, sizeof(signal));
  return size == sizeof(signal) ? signal : 0;
}

FileDescriptor make_report_file() {
  return above_standard_streams(FileDescriptor(check_call(
      memfd_create("ddp-report", MFD_CLOEXEC), "cannot create a report file")));
}

SpawnedWorkers::~SpawnedWorkers() {
  send({SIGKILL});
  for (const auto& end : ends_) {
    if (end.state.alive()) {
      waitpid(end.pid, nullptr, 0);
    }
  }
}

void SpawnedWorkers::add(pid_t pid, FileDescriptor report) {
  auto& end = ends_.emplace_back();
  end.rank = static_cast<int>(ends_.size()) - 1;
  end.pid = pid;
  reports_.push_back(std::move(report));
  processes_.push_back(open_process(pid));
}

int SpawnedWorkers::wait() {
  while (supervisor_.running()) {
    sleep();
    take_signals();
    reap();
    const auto now = steady_clock::now();
    const auto deadline = supervisor_.deadline();
    if (deadline && now >= *deadline) {
      send(supervisor_.deadline_passed(now));
    }
  }
  take_signals();
  return supervisor_.signal();
}

std::string SpawnedWorkers::failure() const {
  const auto root = root_cause(ends_);
  if (!root) {
    return "";
  }
  const auto& end = ends_[*root];
  return "rank " + std::to_string(end.rank) + " of " +
      std::to_string(ends_.size()) + " (pid " + std::to_string(end.pid) + ") " +
      describe(end, reports_[*root]);
}

void SpawnedWorkers::send(const Supervisor::Signals& signals) const {
  for (const int signal : signals) {
    for (const auto& end : ends_) {
      if (end.state.alive()) {
        kill(end.pid, signal);
      }
    }
  }
}

/// Sleeps until a signal, the end of a process, or the deadline.
void SpawnedWorkers::sleep() const {
  std::vector<pollfd> ready{{signals_.descriptor(), POLLIN, 0}};
  auto patience = kLongestWait;
  for (const int rank : supervisor_.alive()) {
    const auto& process = processes_.at(static_cast<size_t>(rank));
    ready.push_back({process.get(), POLLIN, 0});
    patience = process ? patience : kLookTime;
  }
  if (const auto deadline = supervisor_.deadline()) {
    const auto left =
        std::chrono::ceil<milliseconds>(*deadline - steady_clock::now());
    patience = std::clamp(left, milliseconds(0), patience);
  }
  poll(ready.data(), ready.size(), static_cast<int>(patience.count()));
}

void SpawnedWorkers::take_signals() {
  while (int signal = signals_.next()) {
    const int number = std::abs(signal);
    if (number == SIGHUP) { // a closed terminal may tell this process alone
      signal = number;
    }
    Supervisor::Signals passed{number};
    if (ends_program(number)) {
      const auto now = steady_clock::now();
      if (signal == supervisor_.signal() && now - asked_ < kSameRequest) {
        continue;
      }
      asked_ = now;
      passed = supervisor_.asked_to_end(number, now);
    }
    if (signal < 0) { // they already have this signal
      passed.erase(
          std::remove(passed.begin(), passed.end(), number), passed.end());
    }
    send(passed);
  }
}

void SpawnedWorkers::reap() {
  for (const int rank : supervisor_.alive()) {
    const auto index = static_cast<size_t>(rank);
    auto& end = ends_.at(index);
    int status = 0;
    const auto result = waitpid(end.pid, &status, WNOHANG);
    if (result == 0 || (result < 0 && errno != ECHILD)) {
      continue;
    }
    if (result < 0) {
      status = kNotKnown;
    } else if (!came_to_its_call(reports_[index])) {
      status |= kBeforeItsCall;
    }
    end.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
    if (status != 0) {
      end.error = read_error_file(
          "/proc/self/fd/" + std::to_string(reports_[index].get()),
          program_file());
    }
    end.state.ended(status, std::chrono::nanoseconds(0));
    send(supervisor_.rank_ended(
        rank, status, is_consequence(end), steady_clock::now()));
    end.state = supervisor_.ranks()[index];
  }
}

} // namespace ddp::detail
