#pragma once

#include <ddp/backends/common/backend.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace ddp::backends::mpi {

/// The maximum number of elements of a message; MPI counts elements in `int`.
constexpr int64_t kLargestPiece = int64_t(1) << 30;

/// Ranks that communicate over MPI: an `MPI_Comm` that this library owns.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// A communicator of the ranks that pass the same `color` (at least 0),
  /// ordered by `key` and then by rank; null if `color` is -1. Collective.
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;

  /// Returns rank 0's text. Collective.
  virtual std::string broadcast(const std::string& text) = 0;

  /// A backend for CPU and CUDA tensors on a duplicate of this communicator, so
  /// that its messages do not mix with others. The backend uses only the
  /// timeout of `options`. Tensors of more than `largest` elements are passed
  /// to MPI in pieces of this size. Collective.
  virtual c10::intrusive_ptr<c10d::Backend> create(
      const BackendOptions& options,
      int64_t largest = kLargestPiece) = 0;
};

/// The functions of libddp_mpi. This separate library is loaded on demand, so
/// ddp itself does not need MPI.
struct Library {
  /// The version of ddp to which the library belongs.
  const char* version;

  /// Whether MPI is initialized in this process, and not finalized.
  bool (*initialized)();

  /// A duplicate of MPI_COMM_WORLD. If MPI is not initialized, initializes MPI,
  /// and finalizes MPI at the end of the process. Collective: this function and
  /// the communicator's functions throw `c10::DistBackendError` if not all
  /// ranks call them within `timeout`.
  std::shared_ptr<Communicator> (*world)(std::chrono::milliseconds timeout);

  /// A duplicate of the program's `MPI_Comm`, which is at `handle` and has
  /// `size` bytes. Throws `c10::ValueError` if this build's MPI represents
  /// communicators differently. Collective, like `world`.
  std::shared_ptr<Communicator> (*adopt)(
      const void* handle,
      size_t size,
      std::chrono::milliseconds timeout);

  /// Whether operations progress only in calls of the program's threads, since
  /// MPI allows no other thread. MPI must be initialized.
  bool (*needs_calls)();

  /// Calls `start`. If the collectives that it starts need calls, they progress
  /// in `drive`, in the `wait` of a `Work`, and when another one starts; others
  /// are waited for where they start.
  void (*defer)(const std::function<void()>& start);

  /// Lets operations that need calls progress until `done` returns true, or
  /// until `until`.
  void (*drive)(
      std::chrono::steady_clock::time_point until,
      const std::function<bool()>& done);
};

/// Loads libddp_mpi once, from the folder of ddp's library or from the loader's
/// search path. Throws `c10::Error` if libddp_mpi cannot be loaded or has
/// another version.
const Library& library();

/// The error that `library()` would throw; empty if `library()` would succeed.
std::string unavailable();

/// The name of the function that libddp_mpi exports for `library()`.
constexpr const char* kEntry = "ddp_mpi_library";
using Entry = const Library* (*)();

} // namespace ddp::backends::mpi
