#pragma once

#include <ddp/backends/mpi.h>
#include <ddp/backends/mpi/operation.h>

#include <chrono>
#include <memory>

namespace ddp::backends::mpi {

/// A `Communicator` on a communicator of its own, which is `comm`. What it does
/// collectively throws `c10::DistBackendError` where not all come in time.
std::shared_ptr<Communicator> make_communicator(
    std::unique_ptr<Comm> comm,
    std::chrono::milliseconds timeout);

/// A duplicate of `comm`. Collective; throws as that does.
std::unique_ptr<Comm> duplicate(
    MPI_Comm comm,
    std::chrono::milliseconds timeout);

} // namespace ddp::backends::mpi
