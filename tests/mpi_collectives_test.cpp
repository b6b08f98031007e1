// The collectives of the MPI backend.

#include <tests/support/backend_checks.h>
#include <tests/support/mpi_backend.h>

namespace ddp::test::mpi_collectives_test {

MPI_TEST("collectives over MPI move and reduce what they should") {
  const auto backend = mpi_backend();
  REQUIRE(backend->getBackendName() == "mpi");
  check_movement(backend);
  check_tagged_messages(backend);
  check_reductions(backend);
}

} // namespace ddp::test::mpi_collectives_test
