// Groups that mpirun started.

#include <tests/support/free_port.h>
#include <tests/support/launched.h>
#include <tests/support/mpirun.h>

namespace ddp::test::mpirun_test {

TEST_CASE("mpirun's ranks meet without being told where") {
  check_lines(output_of({"-n", "4", program("group_member")}), 4, "shm");
  const auto output =
      output_of({"-x", "DDP_BACKEND=gloo", "-n", "4", program("group_member")});
  check_lines(output, 4, "gloo");
  // On one host, no other host can connect.
  REQUIRE(output.find("open sockets 1") == std::string::npos);
  check_lines(output_of({"-n", "1", program("group_member")}), 1, "none");
}

TEST_CASE("mpirun's ranks wait for one that comes late") {
  check_lines(
      output_of({"-n", "3", program("group_member"), "late"}), 3, "shm");
}

TEST_CASE("the next program under one mpirun waits for a rank that lingers") {
  for (const std::string rank : {"0", "1"}) {
    const auto programs = "\"$0\" lingers " + rank + " && \"$0\"";
    check_lines(
        output_of({"-n", "3", "bash", "-c", programs, program("group_member")}),
        3,
        "shm");
  }
}

TEST_CASE("programs of one mpirun are one group") {
  check_lines(
      output_of(
          {"-n",
           "2",
           program("group_member"),
           "a",
           ":",
           "-n",
           "1",
           program("group_member"),
           "b"}),
      3,
      "shm");
}

TEST_CASE("variables left in the shell are refused on every rank") {
  const auto outcome = mpirun(
      {"-n", "2", program("group_member")},
      {{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  REQUIRE_THAT(
      refusal_of(outcome),
      Has("RANK=0 WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK="));
}

TEST_CASE("a rank that fails under mpirun ends the job with its reason") {
  for (const char* mode : {"early", "fails"}) {
    const auto outcome = mpirun({"-n", "3", program("group_member"), mode});
    REQUIRE_THAT(refusal_of(outcome), Has("no data on this rank"));
    REQUIRE(outcome.seconds.count() < 20); // well below the ranks' timeout
  }
}

TEST_CASE("ranks under mpirun agree on a bad interface") {
  const auto outcome = mpirun(
      {"-n", "3", program("group_member")}, {{"DDP_INTERFACE", "no-such-one"}});
  REQUIRE_THAT(refusal_of(outcome), Has("of 3: interface 'no-such-one'"));
  REQUIRE(outcome.seconds.count() < 20);
}

TEST_CASE("a child of mpirun's rank may exit") {
  check_lines(
      output_of({"-n", "2", program("group_member"), "forks"}), 2, "shm");
}

TEST_CASE("a program that is told where to meet may leave by _exit") {
  const auto port = std::to_string(free_port());
  check_lines(
      output_of(
          {"-n", "2", program("group_member"), "leaves"},
          {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}}),
      2,
      "shm");
}

TEST_CASE("a program may initialise MPI after the group has formed") {
  need_mpirun("mpi_member");
  const auto output =
      output_of({"-n", "3", program("mpi_member"), "later", "gloo"});
  check_lines(output, 3, "gloo");
  REQUIRE_THAT(output, Has("over MPI 3"));
}

} // namespace ddp::test::mpirun_test
