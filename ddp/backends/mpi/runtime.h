#pragma once

#include <mpi.h>

namespace ddp::backends::mpi {

/// Throws `c10::DistBackendError` if `code`, the result of the MPI function
/// `call`, is an error.
void check_mpi(int code, const char* call);

/// The threads that may call MPI.
enum class Threading {
  /// Any thread at any time.
  kFree,
  /// Any thread, one at a time: this library initialised MPI, and makes all
  /// calls.
  kOneAtATime,
  /// Only the program's threads, since the program initialised MPI without
  /// support for more: operations progress within their calls.
  kCaller,
};

/// Whether MPI is initialised and not finalised.
bool mpi_running();

/// Initialises MPI if needed; MPI is then finalised at the end of the process,
/// unless the program finalises it earlier. Throws `c10::DistBackendError` if
/// MPI was finalised or cannot start.
Threading initialize_mpi();

/// Throws `c10::DistBackendError` if the threading level with which the program
/// initialised MPI does not allow calls from this thread.
void check_thread();

/// An `MPI_Comm` that this object owns and frees; errors are returned, not
/// fatal.
class Comm {
 public:
  Comm() = default;
  explicit Comm(MPI_Comm owned);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();

  MPI_Comm get() const {
    return comm_;
  }
  int rank() const;
  int size() const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

} // namespace ddp::backends::mpi
