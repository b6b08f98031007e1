// The collectives of the MPI backend.

#include <tests/support/backend_checks.h>
#include <tests/support/mpi_backend.h>

namespace mpi_collectives_test {

using ddp::test::mpi_backend;
using ddp::test::mpi_ranks;

TEST_CASE("collectives over MPI move and reduce what they should") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    REQUIRE(backend->getBackendName() == "mpi");
    ddp::test::check_movement(backend);
    ddp::test::check_reductions(backend);
  });
}

} // namespace mpi_collectives_test
