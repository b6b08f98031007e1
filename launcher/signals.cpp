#include <launcher/signals.h>

#include <sys/signalfd.h>
#include <unistd.h>

namespace ddp {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal :
       {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  // A blocked signal is queued even where it is ignored, so taking these would
  // undo nohup, and stop what a shell without job control started.
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
  // An ignored SIGCHLD, inherited, would make the kernel reap our children.
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
}

FileDescriptor open_signal_descriptor() {
  const sigset_t set = handled_signals();
  return FileDescriptor(check_call(
      signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
      "cannot open a signalfd"));
}

int next_signal(const FileDescriptor& signals) {
  signalfd_siginfo info{};
  const ssize_t size = ::read(signals.get(), &info, sizeof info);
  return size == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

bool ends_job(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
      signal == SIGQUIT;
}

} // namespace ddp
