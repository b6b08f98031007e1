#include <tests/support/test_program.h>

int main(int argc, char** argv) {
  return ddp::test::run_cases(argc, argv);
}
