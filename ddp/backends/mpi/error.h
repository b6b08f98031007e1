#pragma once

namespace ddp::backends::mpi {

/// Throws `c10::DistBackendError` where `code`, what the MPI function `call`
/// returned, is an error.
void check_mpi(int code, const char* call);

} // namespace ddp::backends::mpi
