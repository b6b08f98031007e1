#include <ddp/backends/mpi/communicator.h>
#include <ddp/backends/mpi/engine.h>
#include <ddp/backends/mpi/runtime.h>
#include <ddp/internal/check.h>

#include <cstring>

namespace ddp::backends::mpi {
namespace {

std::shared_ptr<Communicator> world(std::chrono::milliseconds timeout) {
  initialize_mpi();
  Engine::get();
  return make_communicator(duplicate(MPI_COMM_WORLD, timeout), timeout);
}

std::shared_ptr<Communicator> adopt(
    const void* handle,
    size_t size,
    std::chrono::milliseconds timeout) {
  DDP_CHECK_VALUE(
      handle && size == sizeof(MPI_Comm),
      "an MPI_Comm of {} bytes, but those of the MPI that ddp was built with "
      "have {}. Build ddp with the program's MPI",
      size,
      sizeof(MPI_Comm));
  DDP_CHECK_VALUE(
      mpi_running(),
      "an MPI_Comm was handed over, but MPI is not initialised, or finalised");
  MPI_Comm comm = MPI_COMM_NULL;
  std::memcpy(&comm, handle, size);
  DDP_CHECK_VALUE(comm != MPI_COMM_NULL, "MPI_COMM_NULL was handed over");
  int between_groups = 0;
  MPI_Comm_test_inter(comm, &between_groups);
  DDP_CHECK_VALUE(
      !between_groups,
      "an intercommunicator was handed over; ddp needs an "
      "intracommunicator");
  return make_communicator(duplicate(comm, timeout), timeout);
}

} // namespace
} // namespace ddp::backends::mpi

extern "C" __attribute__((visibility("default")))
const ddp::backends::mpi::Library*
ddp_mpi_library() {
  using namespace ddp::backends::mpi;
  static const Library library{DDP_VERSION, mpi_running, world, adopt};
  return &library;
}
