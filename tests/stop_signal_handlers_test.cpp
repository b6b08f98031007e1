// StopSignal and the program's own handlers of signals.
#include <tests/support/launched.h>

#include <ddp/elastic.h>

namespace ddp::test::stop_signal_handlers_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::atomic<int> own_calls{0};
void own_handler(int /*signal*/) {
  ++own_calls;
}

/// A handler of the program's, which is put back as it was.
struct OwnHandler {
  explicit OwnHandler(int signal) : number(signal) {
    struct sigaction action {};
    action.sa_handler = own_handler;
    sigaction(number, &action, &before);
    own_calls = 0;
  }
  ~OwnHandler() {
    sigaction(number, &before, nullptr);
  }
  int number;
  struct sigaction before {};
};

TEST_CASE("the signals are the program's choice, and its again afterwards") {
  const OwnHandler term(SIGTERM);
  {
    StopSignal stop(ProcessGroup(), {SIGUSR2, SIGHUP, SIGUSR2});
    raise(SIGTERM);
    REQUIRE(own_calls == 1);
    REQUIRE_FALSE(stop.requested());
    raise(SIGUSR2);
    REQUIRE(stop.requested());
  }
  {
    StopSignal stop{ProcessGroup()};
    REQUIRE_FALSE(stop.requested()); // the one before was answered
    raise(SIGTERM);
    REQUIRE(stop.requested());
    REQUIRE(own_calls == 1);
  }
  raise(SIGTERM);
  REQUIRE(own_calls == 2);

  std::optional<StopSignal> stop;
  stop.emplace(ProcessGroup());
  const OwnHandler newer(SIGUSR1); // installed over ours: left alone
  stop.reset();
  raise(SIGUSR1);
  REQUIRE(own_calls == 1);
}

TEST_CASE("a second StopSignal, and what is no signal, are refused") {
  const OwnHandler own(SIGTERM);
  for (const int number : {0, -3, SIGKILL, SIGSTOP, 1000}) {
    REQUIRE_THROWS_AS(
        StopSignal(ProcessGroup(), {SIGTERM, number}), c10::ValueError);
    raise(SIGTERM);
    REQUIRE(own_calls-- == 1);
  }
  StopSignal stop{ProcessGroup()};
  REQUIRE_THROWS_WITH(
      StopSignal(ProcessGroup()), Has("in this process already"));
  raise(SIGTERM);
  REQUIRE(stop.requested()); // the first one works on
}

TEST_CASE("a signal that comes again later does what it did before") {
  const OwnHandler own(SIGTERM);
  StopSignal stop{ProcessGroup()};
  const auto start = Clock::now();
  while (own_calls == 0 && Clock::now() - start < 20s) {
    raise(SIGTERM);
    REQUIRE(stop.requested());
  }
  REQUIRE(own_calls == 1);
  REQUIRE(Clock::now() - start > 2s);
  raise(SIGTERM);
  REQUIRE(own_calls == 2);
}

} // namespace ddp::test::stop_signal_handlers_test
