#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Asks the PMIx server that started this process (mpirun, prterun, srun with
/// --mpi=pmix) for its job. None if there is no server, or no libpmix.so.2,
/// which this function loads.
///
/// The connection lasts until the process exits. With Open MPI 4.1, a process
/// that exits without closing it ends the job, and a process that closes it can
/// no longer initialise MPI.
std::optional<PmixJob> pmix_job();

/// The reason for which there is no job; empty if there is one.
std::string pmix_unavailable();

/// Returns the text of rank 0 on every rank. Collective over the whole job.
/// Throws `c10::DistNetworkError` if not all ranks have arrived within
/// `timeout`, or if the server fails.
std::string pmix_broadcast(
    const std::string& text,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
