#include <launcher/remote/host_process.h>

#include <csignal>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/processes/failure.h>
#include <common/processes/worker.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/cli/program.h>
#include <launcher/remote/starter_link.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/signals.h>

extern char** environ; // NOLINT(readability-redundant-declaration)

namespace ddp {
namespace {

pid_t start(const HostCommand& command, int input, int out, int err) {
  WorkerPlan plan;
  plan.program = find_program(command.words[0]);
  plan.arguments = command.words;
  plan.environment = worker_environment({{kStarterVariable, "1"}}, environ);
  plan.in_fd = input;
  plan.out_fd = out;
  plan.err_fd = err;
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
    Sink* out,
    Sink* err)
    : command_(std::move(command)),
      number_(random_hex(16)),
      out_(FileDescriptor(), out),
      err_(FileDescriptor(), err) {
  Pipe input = make_pipe();
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  pid_ = start(
      command_,
      input.read_end.get(),
      output.write_end.get(),
      errors.write_end.get());
  fcntl(output.read_end.get(), F_SETFL, O_NONBLOCK);
  fcntl(errors.read_end.get(), F_SETFL, O_NONBLOCK);
  fcntl(input.write_end.get(), F_SETFL, O_NONBLOCK);
  out_ = CarriedStream(std::move(output.read_end), out);
  err_ = CarriedStream(std::move(errors.read_end), err);
  input_ = std::move(input.write_end);
  // A pipe takes them at once.
  const std::string lines = number_ + "\n" + secret + "\n";
  if (write(input_.get(), lines.data(), lines.size()) < 0) {
    input_.reset(); // the process has ended, and will tell why
  }
}

void HostProcess::carry() {
  for (CarriedStream* each : {&out_, &err_}) {
    if (each->fd_to_poll() >= 0) {
      each->read_some();
    }
  }
  pass_on();
}

void HostProcess::pass_on() {
  started_ = started_ || out_.take(started_mark(number_));
  finished_ = finished_ || out_.take(finished_mark(number_));
  // What a remote shell says itself is held until it turns out to have worked.
  if (started_) {
    out_.pass_on();
    err_.pass_on();
  }
}

bool HostProcess::reap() {
  int status = 0;
  if (!is_running() || waitpid(pid_, &status, WNOHANG) != pid_) {
    return false;
  }
  for (CarriedStream* each : {&out_, &err_}) {
    while (each->read_some()) {
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
  const std::string said =
      started_ ? "" : without_last_newlines(out_.held() + err_.held());
  return ": " + name.substr(name.rfind('/') + 1) + " ended with exit code " +
      std::to_string(exit_code()) + (said.empty() ? "" : ": " + said);
}

void HostProcess::pass_signal(int signal) {
  const std::string line = "signal " + std::to_string(signal) + "\n";
  if (started_ && input_) {
    if (write(input_.get(), line.data(), line.size()) < 0) {
      input_.reset();
    }
  } else if (is_running() && ends_job(signal)) {
    ::kill(pid_, SIGTERM);
  }
}

void HostProcess::kill() {
  if (is_running()) {
    ::kill(pid_, SIGKILL);
  }
}

} // namespace ddp
