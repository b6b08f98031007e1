#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif
#include <tests/support/watchdog.h>

int main(int argc, char** argv) {
  ddp::test::install_watchdog();
  return Catch::Session().run(argc, argv);
}
