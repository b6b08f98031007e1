#include <launcher/agent/worker.h>

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <launcher/signals.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

namespace ddp {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void become_worker(
    const WorkerPlan& plan,
    pid_t parent,
    char* const* argv,
    char* const* envp) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) { // died before the line above
    _exit(kExitInternal);
  }
  setsid();
  dup2(plan.null_fd, STDIN_FILENO);
  dup2(plan.out_fd, STDOUT_FILENO);
  dup2(plan.err_fd, STDERR_FILENO);
#ifdef SYS_close_range
  // Ours are O_CLOEXEC already; this is for what our own parent left open.
  syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
#endif
  for (int fd : plan.kept_fds) {
    fcntl(fd, F_SETFD, 0);
  }
  if (plan.descriptor_limit) {
    setrlimit(RLIMIT_NOFILE, &*plan.descriptor_limit);
  }
  if (plan.place.bound) {
    apply_place(plan.place); // was checked to be allowed when it was chosen
  }
  restore_default_signals();
  execve(plan.program.c_str(), argv, envp);
  const ExecError failure{errno};
  if (write(plan.exec_error_fd, &failure, sizeof failure) < 0) {
    _exit(kExitInternal);
  }
  _exit(kExitNotExecutable);
}

} // namespace

pid_t fork_worker(const WorkerPlan& plan) {
  const auto argv = pointers_to(plan.arguments);
  const auto envp = pointers_to(plan.environment);
  const pid_t parent = getpid();
  const pid_t pid = check_call(fork(), "cannot fork a worker");
  if (pid == 0) {
    become_worker(plan, parent, argv.data(), envp.data());
  }
  return pid;
}

} // namespace ddp
