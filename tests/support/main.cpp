#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif
#include <tests/support/watchdog.h>

#include <ATen/CPUGeneratorImpl.h>

#include <cstdlib>

namespace {

/// Random values are alike in each run, so that a failure comes again; they
/// differ between ranks. Not at::manual_seed(), which starts CUDA.
void seed_by_rank() {
  const char* rank = std::getenv("RANK");
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1000 + (rank ? std::atoi(rank) : 0));
}

} // namespace

int main(int argc, char** argv) {
  ddp::test::install_watchdog();
  seed_by_rank();
  return Catch::Session().run(argc, argv);
}
