#pragma once

#include <ddp/backends/mpi.h>
#include <ddp/backends/mpi/operation.h>

#include <memory>

namespace ddp::backends::mpi {

/// A `Communicator` on a communicator of its own, which is `comm`.
std::shared_ptr<Communicator> make_communicator(std::unique_ptr<Comm> comm);

/// A duplicate of `comm`. Collective.
std::unique_ptr<Comm> duplicate(MPI_Comm comm);

} // namespace ddp::backends::mpi
