// Groups over MPI: the backend, and communicators of the program.
#include <ddp/backends/mpi.h>
#include <tests/support/backend_checks.h>
#include <tests/support/free_port.h>
#include <tests/support/launched.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/mpirun.h>

namespace ddp::test::mpi_group_test {

const Environment kOverMpi{{"DDP_BACKEND", "mpi"}};

void need_backend(const std::string& needed = "") {
  const auto reason = backends::mpi::unavailable();
  if (!reason.empty()) {
    skip(reason);
  }
  need_mpirun(needed);
}

TEST_CASE("mpirun's ranks train over MPI") {
  need_backend();
  check_lines(
      output_of({"-n", "3", program("group_member")}, kOverMpi), 3, "mpi");
}

TEST_CASE("a process on its own may be a group over MPI") {
  need_backend();
  check_lines(
      output_of(Command{{program("group_member")}, kOverMpi}), 1, "mpi");
}

TEST_CASE("a rank that exits with an error ends the job over MPI") {
  need_backend();
  const auto outcome =
      mpirun({"-n", "3", program("group_member"), "exits"}, kOverMpi);
  output_of(outcome, 3);
  REQUIRE(outcome.seconds.count() < 20); // well below the ranks' timeout
}

TEST_CASE("a program with another MPI trains, but not over MPI") {
  const std::string other = "libother_mpi.so";
  need_backend(other);
  // LD_PRELOAD accepts no path with a space.
  const TemporaryFolder folder;
  const auto link = folder / other;
  std::filesystem::create_symlink(program(other), link);
  const std::vector<std::string> command{
      "-x", "LD_PRELOAD=" + link, "-n", "3", program("group_member")};
  check_lines(output_of(command), 3, "shm");
  REQUIRE_THAT(
      refusal_of(mpirun(command, kOverMpi)),
      Has("the program uses the MPI in " + link));
}

TEST_CASE("a launcher that MPI knows nothing of is an error over MPI") {
  need_backend();
  const auto outcome = run(
      Command{
          {program("group_member")},
          {{"DDP_BACKEND", "mpi"},
           {"RANK", "1"},
           {"WORLD_SIZE", "3"},
           {"MASTER_ADDR", "127.0.0.1"},
           {"MASTER_PORT", "1"}}},
      kLong);
  REQUIRE_THAT(
      refusal_of(outcome),
      Has("according to RANK and WORLD_SIZE, this is rank 1 of 3, but "
          "according to MPI, it is rank 0 of 1"));
}

TEST_CASE("a program that has MPI going gets its group over MPI or beside it") {
  need_backend("mpi_member");
  for (const char* backend : {"mpi", "gloo"}) {
    const auto output =
        output_of({"-n", "3", program("mpi_member"), "first", backend});
    check_lines(output, 3, backend);
    REQUIRE_THAT(output, Has("over MPI 3"));
  }
}

TEST_CASE("half of an MPI program's ranks learn from what the others do") {
  need_backend("mpi_member");
  check_lines(output_of({"-n", "4", program("mpi_member"), "learn"}), 2, "mpi");
  check_lines(
      output_of({"-n", "4", program("mpi_member"), "learn", "gloo"}),
      2,
      "gloo");
}

TEST_CASE("Reducers share a backward over MPI without threads") {
  need_backend("mpi_member");
  check_lines(output_of({"-n", "3", program("mpi_member"), "share"}), 3, "mpi");
}

TEST_CASE("a late rank is told of over MPI without threads") {
  need_backend("mpi_member");
  const auto output = output_of({"-n", "3", program("mpi_member"), "late"});
  check_lines(output, 3, "mpi");
  for (const std::string call : {"barrier", "bucket 1 of 1, step 1"}) {
    REQUIRE_THAT(
        output,
        Has("has waited for 1 s in " + call + "; rank",
            " not reached " + call + ", and ",
            " in no call to ddp"));
  }
}

TEST_CASE("a StopSignal may outlive MPI without threads") {
  need_backend("mpi_member");
  check_lines(output_of({"-n", "3", program("mpi_member"), "stop"}), 3, "mpi");
}

TEST_CASE("a solver may name where its ranks meet") {
  need_backend("mpi_member");
  const auto port = std::to_string(free_port());
  check_lines(
      output_of({"-n", "4", program("mpi_member"), "learn", "gloo", port}),
      2,
      "gloo");
}

TEST_CASE("groups over MPI are duplicated and split") {
  need_backend("mpi_member");
  check_lines(
      output_of({"-n", "4", program("mpi_member"), "split", "mpi"}), 4, "mpi");
}

TEST_CASE("ranks do not wait without end for one that makes no group") {
  need_backend("mpi_member");
  const auto output =
      output_of(mpirun({"-n", "3", program("mpi_member"), "absent", "mpi"}), 7);
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    REQUIRE_THAT(
        output,
        Has(std::string("MPI_Comm_dup timed out after 3000ms on ") + rank +
            ": not all 3 ranks"));
  }
}

TEST_CASE("a rank that has a group of one too tells why it fails") {
  need_backend("mpi_member");
  const auto command = with_ddprun(3, {program("mpi_member"), "alone", "gloo"});
  REQUIRE_THAT(
      refusal_of(run(command, kLong)),
      Has("std::runtime_error: no data on this rank"));
}

TEST_CASE("what is no communicator is refused") {
  need_backend("mpi_member");
  REQUIRE_THAT(
      refusal_of(mpirun({"-n", "1", program("mpi_member"), "wrong"})),
      Has("c10::ValueError"));
}

// The collectives of the MPI backend.

MPI_TEST("collectives over MPI move and reduce what they should") {
  const auto backend = mpi_backend();
  REQUIRE(backend->getBackendName() == "mpi");
  check_movement(backend);
  check_tagged_messages(backend);
  check_reductions(backend);
}

} // namespace ddp::test::mpi_group_test
