#pragma once

#include <pthread.h>
#include <csignal>
#include <initializer_list>

namespace ddp::detail {

/// Blocks signals on this thread while this object exists. Threads that this
/// thread starts meanwhile inherit the blocked signals.
class SignalsBlocked {
 public:
  explicit SignalsBlocked(const sigset_t& signals) {
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  explicit SignalsBlocked(std::initializer_list<int> signals)
      : SignalsBlocked(set_of(signals)) {}
  ~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  static sigset_t set_of(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) {
      sigaddset(&set, signal);
    }
    return set;
  }

 private:
  sigset_t before_{};
};

} // namespace ddp::detail
