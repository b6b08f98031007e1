// Who starts and ends MPI, and which communicators there are.

#include <tests/support/mpi_backend.h>

namespace ddp::test::mpi_lifetime_test {

namespace mpi = backends::mpi;

/// Runs mpi_host on 4 ranks and checks that it ends well.
void host(const std::string& level, const std::string& when) {
  const auto outcome = mpirun(4, {{program("mpi_host"), level, when}, {}});
  INFO(level << ", " << when);
  output_of(outcome);
  require_passed(outcome, 4);
}

TEST_CASE("MPI that the program initialised without threads is used") {
  host("single", "late");
  host("funneled", "early");
}

TEST_CASE("MPI that the program initialised with threads is used") {
  host("multiple", "late");
}

TEST_CASE("MPI that ddp initialised ends with the process") {
  host("none", "never");
  host("none", "early");
}

MPI_TEST("communicators split and tell each other texts", 4) {
  REQUIRE(mpi::unavailable().empty());
  REQUIRE(!mpi::library().initialized());
  const auto world = mpi::library().world(std::chrono::minutes(1));
  REQUIRE(mpi::library().initialized());
  REQUIRE(world->size() == 4);
  const int rank = world->rank();
  const auto text = std::string(100000, 'x') + "y";
  REQUIRE(world->broadcast(rank == 0 ? text : "other") == text);
  REQUIRE(world->broadcast(rank == 0 ? "" : "other").empty());

  // Ranks 3, 2, 1 in this order; rank 0 in none.
  const auto part = world->split(rank == 0 ? -1 : 5, -rank);
  REQUIRE((part == nullptr) == (rank == 0));
  if (part) {
    REQUIRE(part->size() == 3);
    REQUIRE(part->rank() == 3 - rank);
    const auto name = std::to_string(rank);
    REQUIRE(part->broadcast(name) == "3");
    const auto backend = part->create(mpi_timeout(std::chrono::seconds(10)));
    Tensors sums{torch::full({10}, double(rank))};
    backend->allreduce(sums)->wait();
    REQUIRE(sums[0].eq(6).all().item<bool>());
  }
  REQUIRE_THROWS_AS(world->split(-2, 0), c10::ValueError);
  // Groups come and go.
  for (int i = 0; i < 50; ++i) {
    const auto backend = world->create(mpi_timeout(std::chrono::seconds(10)));
    backend->barrier({})->wait();
  }
}

} // namespace ddp::test::mpi_lifetime_test
