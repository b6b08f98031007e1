#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Queries the PMIx server that started this process (mpirun, prterun, srun
/// with --mpi=pmix) about its job. Loads libpmix.so.2. Returns `std::nullopt`
/// if the server or the library is missing.
///
/// The connection lasts until the process exits. With Open MPI 4.1, a process
/// that exits without closing the connection ends the job, and a process that
/// closes the connection can no longer initialize MPI.
std::optional<PmixJob> pmix_job();

/// The reason why `pmix_job` found no job; empty if it found a job.
std::string pmix_unavailable();

/// Returns rank 0's text on every rank. Collective over the whole job. Throws
/// `c10::DistNetworkError` if not all ranks have arrived within `timeout`, or
/// if the server fails.
std::string pmix_broadcast(
    const std::string& text,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
