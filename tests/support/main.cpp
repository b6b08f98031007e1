#include <tests/support/folder_of_ranks.h>
#include <tests/support/seed.h>
#include <tests/support/test_program.h>

#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>

namespace {

/// Ends the process without LibTorch's static destructors, which take a third
/// of the time of a short test. Sanitizers report at the usual end.
void end(int code) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);
#else
  std::exit(code);
#endif
}

void report(int /*signal*/) {
  const char text[] = "watchdog: this rank hangs in\n";
  if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
    _exit(2);
  }
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
  _exit(128 + SIGABRT);
}

/// Ends this process with a stack trace on stderr when the harness sends
/// SIGABRT, so that a hanging test reports its position.
void install_watchdog() {
  void* frame[1];
  backtrace(frame, 1); // loads libgcc now; it may not be safe in the handler
  struct sigaction action {};
  action.sa_handler = report;
  sigaction(SIGABRT, &action, nullptr);
}

} // namespace

int main(int argc, char** argv) {
  install_watchdog();
  ddp::test::seed_by_rank();
  int code = ddp::test::run_cases(argc, argv);
  if (std::getenv("DDP_TEST_CALL") && code == EXIT_SUCCESS) {
    std::cerr << "this rank's part of the test case was not reached\n";
    code = EXIT_FAILURE;
  }
  ddp::test::folder_of_ranks.reset();
  end(code);
}
