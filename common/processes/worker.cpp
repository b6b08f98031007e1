#include <common/processes/worker.h>

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <common/file_descriptor.h>
#include <common/scheduler/launch_error.h>

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

// Until exec, a handler of the parent could still run in the child.
void restore_default_signals(bool also_ignored) {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (also_ignored || action.sa_handler != SIG_IGN) {
      action = {};
      action.sa_handler = SIG_DFL;
      sigaction(signal, &action, nullptr); // fails for KILL and STOP, as it may
    }
  }
}

// Runs between fork and exec, when other threads may have held any lock:
// async-signal-safe calls only.
[[noreturn]] void become_worker(
    const WorkerPlan& plan,
    pid_t parent,
    sigset_t mask,
    char* const* argv,
    char* const* envp) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) { // it died before the line above
    _exit(kExitInternal);
  }
  if (plan.apart) {
    setsid();
    sigemptyset(&mask);
  }
  dup2(plan.in_fd, STDIN_FILENO);
  fcntl(STDIN_FILENO, F_SETFD, 0); // dup2 does nothing if in_fd is 0
  dup2(plan.out_fd, STDOUT_FILENO);
  dup2(plan.err_fd, STDERR_FILENO);
#ifdef SYS_close_range
  // ddp's descriptors are O_CLOEXEC already; this call is for other code's.
  syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
#endif
  for (int fd : plan.kept_fds) {
    fcntl(fd, F_SETFD, 0);
  }
  restore_default_signals(plan.apart);
  if (plan.prepare) {
    plan.prepare();
  }
  if (!plan.folder.empty() && chdir(plan.folder.c_str()) != 0) {
    errno = 0; // the folder no longer exists
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execve(plan.program.c_str(), argv, envp);
  const int error = errno;
  if (write(plan.exec_error_fd, &error, sizeof error) < 0) {
    _exit(kExitInternal);
  }
  _exit(kExitNotExecutable);
}

} // namespace

pid_t fork_worker(WorkerPlan plan) {
  const auto argv = pointers_to(plan.arguments);
  const auto envp = pointers_to(plan.environment);
  FileDescriptor null;
  if (plan.in_fd < 0) {
    null = FileDescriptor(check_call(
        open("/dev/null", O_RDONLY | O_CLOEXEC), "cannot open /dev/null"));
    plan.in_fd = null.get();
  }
  const pid_t parent = getpid();
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t pid = fork();
  if (pid == 0) {
    become_worker(plan, parent, mask, argv.data(), envp.data());
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  errno = error;
  return check_call(pid, "cannot fork a worker");
}

} // namespace ddp
