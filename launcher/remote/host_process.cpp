#include <launcher/remote/host_process.h>

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/processes/failure.h>
#include <common/processes/worker.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/cli/program.h>
#include <launcher/processes.h>
#include <launcher/remote/launcher_link.h>
#include <launcher/rendezvous/authentication.h>

extern char** environ; // NOLINT(readability-redundant-declaration)

namespace ddp {
namespace {

constexpr size_t kMostWaiting = 1024 * 1024;
constexpr size_t kLongestHeld = 64 * 1024;

pid_t start(
    const HostCommand& command,
    const rlimit& descriptor_limit,
    int input,
    int out,
    int err) {
  WorkerPlan plan;
  plan.program = find_program(command.words[0]);
  plan.arguments = command.words;
  plan.environment =
      worker_environment({{kRemoteLauncherVariable, "1"}}, environ);
  plan.in_fd = input;
  plan.out_fd = out;
  plan.err_fd = err;
  plan.prepare = [&] {
    setrlimit(RLIMIT_NOFILE, &descriptor_limit);
    ignore_job_signals();
  };
  return fork_worker(plan);
}

std::string without_last_newlines(std::string text) {
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text;
}

} // namespace

HostProcess::HostProcess(
    HostCommand command,
    const std::string& secret,
    const rlimit& descriptor_limit,
    Sink* out,
    Sink* err)
    : command_(std::move(command)), number_(random_hex(16)) {
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  pid_ = start(
      command_,
      descriptor_limit,
      input.read_end.get(),
      output.write_end.get(),
      errors.write_end.get());
  for (const int ours :
       {output.read_end.get(), errors.read_end.get(), input.write_end.get()}) {
    fcntl(ours, F_SETFL, O_NONBLOCK);
  }
  streams_[0] = {std::move(output.read_end), out};
  streams_[1] = {std::move(errors.read_end), err};
  input_ = std::move(input.write_end);
  tell(number_ + "\n" + secret + "\n"); // these fit into the pipe
}

std::array<int, 2> HostProcess::fds_to_poll() const {
  std::array<int, 2> fds{};
  for (size_t i = 0; i < fds.size(); ++i) {
    const Stream& stream = streams_[i];
    fds[i] = stream.sink->waiting() > kMostWaiting ? -1 : stream.source.get();
  }
  return fds;
}

void HostProcess::carry() {
  const auto fds = fds_to_poll();
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i] >= 0) {
      read_some(streams_[i]);
    }
  }
  pass_on();
}

// Returns whether there was output.
bool HostProcess::read_some(Stream& stream) {
  std::array<char, 16384> bytes;
  const ssize_t size = read(stream.source.get(), bytes.data(), bytes.size());
  if (size > 0) {
    stream.held.append(bytes.data(), static_cast<size_t>(size));
  } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
    stream.source.reset();
  }
  return size > 0;
}

// Removes a mark from the output. Returns whether it was there.
bool HostProcess::take(const std::string& mark) {
  std::string& held = streams_[0].held;
  const size_t at = held.find(mark);
  if (at != std::string::npos) {
    held.erase(at, mark.size());
  }
  return at != std::string::npos;
}

void HostProcess::pass_on() {
  started_ = started_ || take(started_mark(number_));
  finished_ = finished_ || take(finished_mark(number_));
  // The remote shell's own output is held until ddprun has started.
  for (Stream& each : streams_) {
    if (started_) {
      pass_on(each);
    }
  }
}

// Forwards whole lines, and also the rest if it is long or the stream has
// ended.
void HostProcess::pass_on(Stream& stream) {
  std::string& held = stream.held;
  const bool is_all = !stream.source || held.size() > kLongestHeld;
  const size_t end = is_all ? held.size() : held.rfind('\n') + 1;
  stream.sink->append(std::string_view(held).substr(0, end));
  held.erase(0, end);
}

bool HostProcess::reap() {
  int status = 0;
  if (!is_running() || waitpid(pid_, &status, WNOHANG) != pid_) {
    return false;
  }
  for (Stream& each : streams_) {
    while (read_some(each)) {
    }
  }
  pass_on();
  wait_status_ = status;
  input_.reset();
  return true;
}

int HostProcess::exit_code() const {
  return exit_code_of(*wait_status_);
}

std::string HostProcess::describe_end() const {
  const std::string& name = command_.words[0];
  const std::string said = started_
      ? ""
      : without_last_newlines(streams_[0].held + streams_[1].held);
  return ": " + name.substr(name.rfind('/') + 1) + " ended with exit code " +
      std::to_string(exit_code()) + (said.empty() ? "" : ": " + said);
}

void HostProcess::pass_signal(int signal) {
  if (started_ && input_) {
    tell("signal " + std::to_string(signal) + "\n");
  } else if (ends_job(signal)) {
    kill(); // it ignores other signals
  }
}

void HostProcess::tell(const std::string& text) {
  if (write(input_.get(), text.data(), text.size()) < 0) {
    input_.reset(); // the process has ended; reap() follows
  }
}

void HostProcess::kill() {
  if (is_running()) {
    ::kill(pid_, SIGKILL);
  }
}

} // namespace ddp
