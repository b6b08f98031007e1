#pragma once

#include <tests/support/backend_values.h>
#include <tests/support/mpi_ranks.h>

#include <ddp/backends/mpi.h>

// For the tests of the MPI backend.

namespace ddp::test {

inline backends::BackendOptions mpi_timeout(std::chrono::milliseconds timeout) {
  backends::BackendOptions options;
  options.timeout = timeout;
  return options;
}

/// A backend over all ranks.
inline c10::intrusive_ptr<c10d::Backend> mpi_backend(
    int64_t largest = backends::mpi::kLargestPiece,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return backends::mpi::library()
      .world(std::chrono::minutes(1))
      ->create(mpi_timeout(timeout), largest);
}

} // namespace ddp::test
