#include <launcher/processes.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/processes/failure.h>
#include <common/processes/worker.h>
#include <common/scheduler/launch_error.h>
#include <common/scheduler/rank_environment.h>

namespace ddp {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal :
       {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  // A blocked signal is queued even if it is ignored, so taking these would
  // undo nohup, and stop programs that a shell without job control started.
  for (int signal : {SIGHUP, SIGTSTP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) {
      sigaddset(&set, signal);
    }
  }
  return set;
}

void take_signals() {
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // If an ignored SIGCHLD were inherited, the kernel would reap the children.
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

FileDescriptor open_signal_descriptor() {
  const sigset_t set = handled_signals();
  return FileDescriptor(check_call(
      signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
      "cannot open a signalfd"));
}

int next_signal(const FileDescriptor& signals, pid_t* sender) {
  signalfd_siginfo info{};
  const ssize_t size = ::read(signals.get(), &info, sizeof info);
  if (sender != nullptr) {
    *sender = static_cast<pid_t>(info.ssi_pid);
  }
  return size == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

bool ends_job(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
      signal == SIGQUIT;
}

bool EndRequests::take(int signal, Time now, pid_t sender) {
  constexpr std::chrono::milliseconds same_request(500);
  if (count_ == 0 || signal == signal_) {
    const bool is_new = sender > 0 && senders_.insert(sender).second;
    if (count_ > 0 && (is_new || now - first_ < same_request)) {
      return false;
    }
  }
  if (++count_ == 1) {
    signal_ = signal;
    first_ = now;
  }
  return true;
}

void stop_for_shell() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr); // stops here
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

rlimit raise_descriptor_limit() {
  rlimit limit{};
  check_call(getrlimit(RLIMIT_NOFILE, &limit), "cannot read RLIMIT_NOFILE");
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

void become_subreaper() {
  check_call(prctl(PR_SET_CHILD_SUBREAPER, 1), "cannot become a subreaper");
}

std::vector<pid_t> child_processes() {
  std::ifstream list("/proc/thread-self/children");
  std::vector<pid_t> pids;
  for (pid_t pid; list >> pid;) {
    pids.push_back(pid);
  }
  return pids;
}

void await_child_signal(int milliseconds) {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  const timespec time{0, int64_t{milliseconds} * 1000 * 1000};
  sigtimedwait(&child_signal, nullptr, &time);
}

void end_descendants(const std::vector<pid_t>& spared) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    bool left = false;
    for (pid_t pid : child_processes()) {
      if (std::find(spared.begin(), spared.end(), pid) != spared.end()) {
        continue;
      }
      left = true;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, WNOHANG);
    }
    if (!left) {
      return;
    }
    await_child_signal(1);
  }
}

std::string find_helper(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& each : {folder / name, folder / DDP_HELPERS / name}) {
    if (fs::exists(each, error)) {
      return each;
    }
  }
  const std::string remedy = name == "ddprun-etcd"
      ? "build ddp where libcurl is installed (Debian: libcurl4-openssl-dev)"
      : "reinstall ddp";
  throw LaunchError(
      kExitInternal,
      name + " is neither in " + folder.string() + " nor in " DDP_HELPERS ": " +
          remedy + ", or keep the two programs together");
}

std::string describe_helper_end(int wait_status) {
  // The dynamic loader ends a program with this code.
  const bool lacks_library =
      WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitNotFound;
  return describe_end(wait_status) +
      (lacks_library ? " (a shared library was not found: set LD_LIBRARY_PATH)"
                     : "");
}

void ignore_job_signals() {
  for (const int signal :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ}) {
    std::signal(signal, SIG_IGN);
  }
}

std::vector<std::string> helper_environment() {
  return worker_environment({}, environ);
}

pid_t start_store(const std::string& program, FileDescriptor listener) {
  WorkerPlan plan;
  plan.program = program;
  plan.arguments = {"ddprun-store", std::to_string(listener.get())};
  plan.environment = helper_environment();
  plan.prepare = ignore_job_signals;
  plan.out_fd = STDERR_FILENO;
  plan.kept_fds = {listener.get()};
  return fork_worker(plan);
}

} // namespace ddp
