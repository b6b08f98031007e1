#include <ddp/spawn/passed_signals.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace ddp::detail {
namespace {

// A handler reaches no more than what is global.
std::atomic<int> pipe_end{-1};

void on_signal(int number, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const int signal = info->si_code > 0 ? -number : number;
  // Should the pipe be full, there are signals enough in it.
  [[maybe_unused]] const auto size = write(pipe_end, &signal, sizeof(signal));
  errno = error;
}

} // namespace

PassedSignals::PassedSignals() : pipe_(make_pipe()) {
  for (const auto* end : {&pipe_.read_end, &pipe_.write_end}) {
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

} // namespace ddp::detail
