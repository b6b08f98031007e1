#pragma once

#include <mpi.h>

namespace ddp::backends::mpi {

/// Throws `c10::DistBackendError` if `code`, what the MPI function `call`
/// returned, is an error.
void check_mpi(int code, const char* call);

/// Who may call MPI.
enum class Threading {
  /// Any thread at any time.
  kFree,
  /// Any thread, one at a time: we initialised MPI, so that all calls are ours.
  kOneAtATime,
  /// The program's own threads only, as it initialised MPI without support for
  /// more: operations then progress within calls of theirs.
  kCaller,
};

/// Whether MPI is initialised and not finalised.
bool mpi_running();

/// Initialises MPI where no one has. MPI that we initialised ends with the
/// process, unless the program has ended it before. Throws
/// `c10::DistBackendError` where MPI was finalised or cannot start.
Threading initialize_mpi();

/// Throws `c10::DistBackendError` if this thread may not call MPI, as the
/// program initialised it.
void check_thread();

/// An `MPI_Comm` that is ours and freed with this object, whose errors are
/// returned and not fatal.
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
