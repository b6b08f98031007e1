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
  const PassedSignals::Signal signal{number, info->si_code > 0};
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
      change(number, passed);
    }
  }
  struct sigaction child {};
  sigaction(SIGCHLD, nullptr, &child);
  if (child.sa_handler == SIG_IGN || (child.sa_flags & SA_NOCLDWAIT)) {
    struct sigaction kept {};
    kept.sa_handler = SIG_DFL;
    change(SIGCHLD, kept);
  }
}

void PassedSignals::change(int number, const struct sigaction& ours) {
  Changed changed{number, {}, ours};
  sigaction(number, &ours, &changed.before);
  changed_.push_back(changed);
}

PassedSignals::~PassedSignals() {
  for (const auto& changed : changed_) {
    struct sigaction now {};
    sigaction(changed.number, nullptr, &now);
    if (now.sa_handler == changed.ours.sa_handler) {
      sigaction(changed.number, &changed.before, nullptr);
    }
  }
  pipe_end = -1;
}

std::optional<PassedSignals::Signal> PassedSignals::next() const {
  Signal signal;
  const auto size = ::read(descriptor(), &signal, sizeof(signal));
  return size == sizeof(signal) ? std::optional<Signal>(signal) : std::nullopt;
}

} // namespace ddp::detail
