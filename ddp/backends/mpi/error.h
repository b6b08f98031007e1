#pragma once

#include <string>

namespace ddp::backends::mpi {

/// MPI's words for an error code.
std::string mpi_error_text(int code);

/// Throws `c10::DistBackendError` where `code`, what the MPI function `call`
/// returned, is an error.
void check_mpi(int code, const char* call);

} // namespace ddp::backends::mpi
