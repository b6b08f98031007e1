#include <tests/support/process.h>

#include <common/poll_until.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <utility>

namespace ddp::test {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int variable(const char* name, int usual) {
  const char* value = std::getenv(name);
  return value ? std::stoi(value) : usual;
}

std::string program(const std::string& name) {
  return variable("DDP_PROGRAMS") + "/" + name;
}

void set_variables(const Environment& environment) {
  for (const auto& [name, value] : environment) {
    value.empty() ? unsetenv(name.c_str())
                  : setenv(name.c_str(), value.c_str(), 1);
  }
}

namespace {

using Clock = std::chrono::steady_clock;

/// The time that a process may take to end by a signal.
constexpr std::chrono::seconds kTimeToEnd(10);

/// Sanitizers make programs slow.
std::chrono::seconds patience_for(std::chrono::seconds timeout) {
  return timeout * variable("DDP_TEST_TIMEOUT_FACTOR", 1);
}

} // namespace

bool becomes_user(const std::string& folder) {
  constexpr uid_t nobody = 65534;
  return (getuid() != 0 || setuid(nobody) == 0) &&
      access(folder.c_str(), X_OK) == 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string self = std::to_string(pid);
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

void become(const Command& command) {
  set_variables(command.environment);
  std::vector<char*> arguments;
  for (const auto& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

Process::Process(const Command& command)
    : Process([&]() -> int { become(command); }) {}

Process::Process(const std::function<int()>& body) : start_(Clock::now()) {
  Pipe pipe = make_pipe();
  pid_ = check_call(fork(), "fork");
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(pipe.write_end.get(), STDOUT_FILENO);
    dup2(pipe.write_end.get(), STDERR_FILENO);
    _exit(body());
  }
  output_ = std::move(pipe.read_end);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      text_(std::move(other.text_)),
      start_(other.start_) {}

Process::~Process() {
  if (pid_ > 0) {
    kill_all();
    detail::poll_for(kTimeToEnd, std::chrono::milliseconds(2), [&] {
      return waitpid(pid_, nullptr, WNOHANG) != 0;
    });
  }
}

void Process::signal(int number) const {
  kill(pid_, number);
}

bool Process::has_ended() const {
  siginfo_t ended{};
  return waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == pid_;
}

void Process::kill_all() const {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL); // it may not have its group yet
}

bool Process::read_some(std::chrono::milliseconds patience) {
  pollfd ready{output_.get(), POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) {
    return true;
  }
  char buffer[4096];
  const auto count = read(output_.get(), buffer, sizeof(buffer));
  if (count > 0) {
    text_.append(buffer, static_cast<size_t>(count));
  }
  return count > 0;
}

bool Process::wait_for(const std::string& text, std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + patience_for(timeout);
  while (text_.find(text) == std::string::npos) {
    if (Clock::now() > deadline || !read_some(std::chrono::milliseconds(50))) {
      return text_.find(text) != std::string::npos;
    }
  }
  return true;
}

void Process::interrupt(bool again, bool killed) const {
  if (killed) {
    throw std::runtime_error(
        "process " + std::to_string(pid_) + " does not end after SIGKILL");
  }
  again ? kill_all() : signal(SIGABRT);
}

Outcome Process::finish(std::chrono::seconds timeout) {
  Outcome outcome;
  auto deadline = start_ + patience_for(timeout);
  // A child may hold the pipe open after the program's end, so check both.
  bool open = true;
  bool killed = false;
  int status = 0;
  for (;;) {
    if (open) {
      open = read_some(std::chrono::milliseconds(20));
    } else {
      usleep(2000);
    }
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      break;
    }
    if (Clock::now() > deadline) {
      interrupt(outcome.hung, killed);
      killed = outcome.hung;
      outcome.hung = true;
      deadline = Clock::now() + kTimeToEnd;
    }
  }
  outcome.seconds = Clock::now() - start_;
  pid_ = -1;
  deadline = Clock::now() + std::chrono::seconds(5); // a child may still write
  for (size_t before = 0;
       open && before != text_.size() && Clock::now() < deadline;) {
    before = text_.size();
    open = read_some(std::chrono::milliseconds(20));
  }
  outcome.output = text_;
  outcome.exit_code =
      WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

std::vector<Outcome> finish(
    std::vector<Process>& processes,
    std::chrono::seconds timeout) {
  // In parallel: a process whose output is not read blocks when the pipe is
  // full.
  std::vector<std::future<Outcome>> outcomes;
  for (auto& process : processes) {
    outcomes.push_back(std::async(std::launch::async, [&process, timeout] {
      return process.finish(timeout);
    }));
  }
  std::vector<Outcome> result;
  for (auto& outcome : outcomes) {
    result.push_back(outcome.get());
  }
  return result;
}

std::vector<Outcome> run(
    const std::vector<Command>& commands,
    std::chrono::seconds timeout) {
  std::vector<Process> processes(commands.begin(), commands.end());
  return finish(processes, timeout);
}

Outcome run(const Command& command, std::chrono::seconds timeout) {
  return Process(command).finish(timeout);
}

} // namespace ddp::test
