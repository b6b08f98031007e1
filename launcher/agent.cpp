#include <launcher/agent.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <launcher/descendants.h>
#include <launcher/launch_error.h>
#include <launcher/signals.h>
#include <launcher/worker.h>

namespace ddp {
namespace {

constexpr int kFrontDied = kExitSignalBase + SIGKILL;
// How long a stopped job waits for a reader that does not read (a pager).
constexpr std::chrono::seconds kLastOutputTime(5);

std::string seconds(std::chrono::duration<double> time) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f s", time.count());
  return text.data();
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kExitSignalBase + WTERMSIG(status)
                             : WEXITSTATUS(status);
}

std::string describe_end(int status) {
  return WIFSIGNALED(status)
      ? "was killed by " + describe_signal(WTERMSIG(status))
      : "exited with code " + std::to_string(WEXITSTATUS(status));
}

// Of a file that is there and may be executed.
std::string describe_exec_error(int error) {
  if (error == ENOENT) {
    return "the interpreter it names does not exist";
  }
  return std::strerror(error) +
      std::string(error == ENOEXEC ? "; a script starts with a #! line" : "");
}

// Several pipes and a pidfd for each rank go beyond the usual limit of 1024.
// Returns the limit that was, for the ranks.
rlimit raise_descriptor_limit() {
  rlimit limit{};
  check_call(getrlimit(RLIMIT_NOFILE, &limit), "cannot read RLIMIT_NOFILE");
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

} // namespace

Agent::Agent(Job& job, FileDescriptor lifeline)
    : job_(job),
      descriptor_limit_(raise_descriptor_limit()),
      lifeline_(std::move(lifeline)),
      signals_(open_signal_descriptor()),
      events_(check_call(epoll_create1(EPOLL_CLOEXEC), "cannot use epoll")),
      output_(job.options.nproc_per_node, STDOUT_FILENO, STDERR_FILENO) {}

int Agent::run() {
  start_workers();
  while (running() > 0) {
    wait_for_events();
  }
  end_descendants(); // daemons and children that the ranks left behind
  output_.finish();
  if (exit_code_) {
    deadline_ = Clock::now() + kLastOutputTime;
  }
  while (!output_done_) {
    wait_for_events();
  }
  return exit_code_.value_or(0);
}

void Agent::start_workers() {
  const FileDescriptor null(check_call(
      open("/dev/null", O_RDONLY | O_CLOEXEC), "cannot open /dev/null"));
  Pipe exec_errors = make_pipe();
  for (int rank = 0; rank < job_.options.nproc_per_node; ++rank) {
    workers_.push_back(
        start_worker(rank, exec_errors.write_end.get(), null.get()));
  }
  job_.listener.socket.reset(); // rank 0's alone from here on
  exec_errors_ = std::move(exec_errors.read_end);
  watch(lifeline_.get());
  watch(signals_.get());
  watch(exec_errors_.get());
  watch(output_.done_fd());
  for (const Worker& worker : workers_) {
    if (worker.process) {
      watch(worker.process.get());
    }
  }
  output_.start();
}

Agent::Worker Agent::start_worker(int rank, int exec_error_fd, int null_fd) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  WorkerPlan plan;
  plan.program = job_.program;
  plan.arguments = job_.options.command;
  plan.environment = worker_environment(job_.environment, rank, environ);
  plan.null_fd = null_fd;
  plan.out_fd = out.write_end.get();
  plan.err_fd = err.write_end.get();
  plan.store_fd = rank == 0 ? job_.environment.store_fd : -1;
  plan.exec_error_fd = exec_error_fd;
  plan.descriptor_limit = descriptor_limit_;
  Worker worker;
  worker.rank = rank;
  worker.pid = fork_worker(plan);
  worker.process = open_process(worker.pid);
  output_.add(std::move(out.read_end), rank, Stream::kOut);
  output_.add(std::move(err.read_end), rank, Stream::kErr);
  return worker;
}

void Agent::watch(int fd) {
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.fd = fd;
  check_call(
      epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &interest),
      "cannot watch a descriptor");
}

void Agent::wait_for_events() {
  // The kernel lists ready descriptors in the order in which they became
  // ready: of two ranks that died, the first one comes first.
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(
      events_.get(), ready.data(), static_cast<int>(ready.size()), time_left());
  for (int i = 0; i < count; ++i) {
    handle_event(ready[static_cast<size_t>(i)].data.fd);
  }
  reap();
  if (deadline_ && Clock::now() >= *deadline_) {
    on_deadline();
  }
}

// Milliseconds until the deadline, as epoll wants them; -1 for none.
int Agent::time_left() const {
  if (!deadline_) {
    return -1;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

void Agent::handle_event(int fd) {
  if (fd == lifeline_.get()) {
    abandon(kFrontDied);
  } else if (fd == signals_.get()) {
    while (const int signal = next_signal(signals_)) {
      on_signal(signal);
    }
  } else if (fd == exec_errors_.get()) {
    on_exec_error();
  } else if (fd == output_.done_fd()) {
    output_done_ = true;
  } else {
    for (Worker& worker : workers_) {
      if (worker.running && worker.process.get() == fd) {
        on_worker_end(worker);
      }
    }
  }
}

void Agent::on_signal(int signal) {
  if (signal == SIGCHLD) {
    return; // every wait ends with reap()
  }
  if (!ends_job(signal)) {
    signal_workers(signal);
  } else if (running() == 0) {
    abandon(exit_code_.value_or(kExitSignalBase + signal));
  } else if (exit_code_) {
    output_.message(
        "ddprun: " + describe_signal(signal) +
        " while stopping; killing all ranks");
    kill_workers();
  } else {
    output_.message("ddprun: stopping all ranks on " + describe_signal(signal));
    begin_stop(kExitSignalBase + signal, signal);
  }
}

void Agent::on_exec_error() {
  ExecError failure{};
  const bool failed =
      read(exec_errors_.get(), &failure, sizeof failure) == sizeof failure;
  exec_errors_.reset();
  if (!failed || exit_code_) {
    return; // all workers run their program, or are being stopped
  }
  exit_code_ = failure.error == ENOENT ? kExitNotFound : kExitNotExecutable;
  output_.message(
      "ddprun: " + job_.program +
      ": cannot be executed: " + describe_exec_error(failure.error));
  kill_workers();
}

void Agent::on_worker_end(Worker& worker) {
  int status = 0;
  waitpid(worker.pid, &status, 0);
  worker.running = false;
  worker.process.reset();
  if (running() == 0) {
    deadline_.reset();
  }
  if (status == 0 || exit_code_) {
    return; // done, or ended because we ended it
  }
  output_.message(
      "ddprun: rank " + std::to_string(worker.rank) + " (pid " +
      std::to_string(worker.pid) + ") " + describe_end(status) + " after " +
      seconds(Clock::now() - started_) +
      (running() > 0 ? "; stopping the other ranks" : ""));
  begin_stop(exit_code_of(status), SIGTERM);
}

// Reaps orphans that came to us, and workers where there are no pidfds. A
// worker with one is left for its event, which is due.
void Agent::reap() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0) {
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& each) {
          return each.running && each.pid == info.si_pid;
        });
    if (worker == workers_.end()) {
      waitpid(info.si_pid, nullptr, WNOHANG);
    } else if (!worker->process) {
      on_worker_end(*worker);
    } else {
      return;
    }
    info = {};
  }
}

void Agent::abandon(int exit_code) {
  end_descendants();
  _exit(exit_code); // the output may be held up: nobody waits for it
}

void Agent::begin_stop(int exit_code, int signal) {
  exit_code_ = exit_code;
  deadline_ = Clock::now() + job_.options.grace;
  signal_workers(signal);
  signal_workers(SIGCONT); // a stopped process takes no other signal
}

void Agent::on_deadline() {
  if (running() == 0) {
    abandon(exit_code_.value_or(kExitInternal));
  }
  std::string ranks;
  for (const Worker& worker : workers_) {
    if (worker.running) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(worker.rank);
    }
  }
  if (!ranks.empty()) {
    output_.message(
        "ddprun: still running " + seconds(job_.options.grace) +
        " after being asked to stop, killed now: rank " + ranks);
  }
  kill_workers();
}

void Agent::kill_workers() {
  deadline_.reset();
  signal_workers(SIGKILL);
}

void Agent::signal_workers(int signal) const {
  for (const Worker& worker : workers_) {
    // Between fork and setsid a worker leads no group yet.
    if (worker.running && kill(-worker.pid, signal) != 0) {
      kill(worker.pid, signal);
    }
  }
}

int Agent::running() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.running;
      }));
}

void agent_main(Job& job, FileDescriptor lifeline) {
  int exit_code = kExitInternal;
  try {
    setsid(); // out of reach of the terminal's signals: the front passes them
    prctl(PR_SET_NAME, "ddp-agent"); // `pkill -9 ddprun` should leave it
    become_subreaper();
    Agent agent(job, std::move(lifeline));
    exit_code = agent.run();
  } catch (const std::exception& error) {
    end_descendants();
    write_all(STDERR_FILENO, std::string("ddprun: ") + error.what() + "\n");
  }
  _exit(exit_code); // exit() belongs to the front
}

} // namespace ddp
