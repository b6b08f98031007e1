#include <ddp/backends/mpi/error.h>

#include <c10/util/Exception.h>
#include <mpi.h>

#include <array>
#include <string>

namespace ddp::backends::mpi {

namespace {

/// MPI's words for an error code.
std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return c10::str("MPI error ", code);
  }
  return std::string(text.data(), static_cast<size_t>(length));
}

} // namespace

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    C10_THROW_ERROR(
        DistBackendError, c10::str(call, " failed: ", mpi_error_text(code)));
  }
}

} // namespace ddp::backends::mpi
