#pragma once

#include <ddp/backends/common/backend.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp::backends::mpi {

/// MPI counts the elements of a message in `int`.
constexpr int64_t kLargestPiece = int64_t(1) << 30;

/// Ranks that reach each other over MPI: an `MPI_Comm` of ours.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The ranks that pass the same `color` (from 0 on), ordered by `key` and
  /// then by rank; null if `color` is -1. Collective.
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;

  /// Rank 0's text. Collective.
  virtual std::string broadcast(const std::string& text) = 0;

  /// A backend for CPU and CUDA tensors on a duplicate of this communicator, so
  /// that its messages do not mix with others. Of `options` it uses the
  /// timeout. Longer tensors are passed to MPI in pieces of `largest` elements.
  /// Collective.
  virtual c10::intrusive_ptr<c10d::Backend> create(
      const BackendOptions& options,
      int64_t largest = kLargestPiece) = 0;
};

/// What libddp_mpi does. That is a library of its own, which is loaded when it
/// is asked for, so that ddp itself does not need MPI.
struct Library {
  /// ddp's version that it belongs to.
  const char* version;

  /// Whether someone has initialised MPI in this process, and no one ended it.
  bool (*initialized)();

  /// A duplicate of MPI_COMM_WORLD. Initialises MPI where no one has, and then
  /// ends it with the process. Collective: it and what is done with the
  /// communicator throw `c10::DistBackendError` where not all ranks come within
  /// `timeout`.
  std::shared_ptr<Communicator> (*world)(std::chrono::milliseconds timeout);

  /// A duplicate of the program's own `MPI_Comm`, which lies at `handle` and
  /// has `size` bytes there. Throws `c10::ValueError` if that is not how the
  /// MPI that this was built with keeps them. Collective, as `world`.
  std::shared_ptr<Communicator> (*adopt)(
      const void* handle,
      size_t size,
      std::chrono::milliseconds timeout);
};

/// Loads libddp_mpi, from beside ddp's own library or from where the loader
/// looks, once. Throws `c10::Error` if it cannot be loaded or is of another
/// version.
const Library& library();

/// Why `library()` would throw; empty if it would not.
std::string unavailable();

/// The function that libddp_mpi exports for `library()`, under this name.
constexpr const char* kEntry = "ddp_mpi_library";
using Entry = const Library* (*)();

} // namespace ddp::backends::mpi
