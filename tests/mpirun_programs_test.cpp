// Programs that one mpirun starts one after the other.

#include <tests/support/launched.h>
#include <tests/support/mpirun.h>

namespace ddp::test::mpirun_programs_test {

TEST_CASE("the next program under one mpirun waits for a rank that lingers") {
  const auto member = program("group_member");
  const auto output =
      output_of({"-n", "3", "bash", "-c", "\"$0\" lingers && \"$0\"", member});
  check_lines(output, 3, "shm");
}

} // namespace ddp::test::mpirun_programs_test
