#include <tests/support/folder_of_ranks.h>
#include <tests/support/seed.h>
#include <tests/support/test_program.h>
#include <tests/support/watchdog.h>

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

} // namespace

int main(int argc, char** argv) {
  ddp::test::install_watchdog();
  ddp::test::seed_by_rank();
  int code = ddp::test::run_cases(argc, argv);
  if (std::getenv("DDP_TEST_CALL") && code == EXIT_SUCCESS) {
    std::cerr << "this rank's part of the test case was not reached\n";
    code = EXIT_FAILURE;
  }
  ddp::test::folder_of_ranks.reset();
  end(code);
}
