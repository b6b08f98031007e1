#include <launcher/signals.h>

#include <cstring>

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

void restore_default_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, &action, nullptr); // fails for KILL and STOP, as it may
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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

std::string describe_signal(int signal) {
  return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

} // namespace ddp
