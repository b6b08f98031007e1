#define CATCH_CONFIG_MAIN // Catch2 2; version 3 brings its own main
#include <tests/support/catch_plain.h>

#if __has_include(<catch2/catch_all.hpp>)
int main(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
#endif
