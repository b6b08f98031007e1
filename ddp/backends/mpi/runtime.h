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
  /// Any thread, one at a time: this library initialized MPI, and makes all
  /// calls.
  kOneAtATime,
  /// Only the program's threads, since the program initialized MPI without
  /// support for other threads. Operations progress within the program's calls.
  kCaller,
};

/// Whether MPI is initialized and not finalized.
bool mpi_running();

/// The reason for which operations fail after MPI_Finalize.
constexpr const char* kFinalized = "MPI was finalized";

/// Initializes MPI if needed; MPI is then finalized at the end of the process,
/// unless the program finalizes MPI earlier. Throws `c10::DistBackendError` if
/// MPI was finalized or cannot start.
Threading initialize_mpi();

/// Throws `c10::DistBackendError` if the threading level with which the program
/// initialized MPI does not allow calls from this thread.
void check_thread();

/// An `MPI_Comm` that this object owns and frees. MPI returns errors instead of
/// ending the process.
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
