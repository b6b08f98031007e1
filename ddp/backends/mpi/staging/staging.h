#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

namespace ddp::backends::mpi {

/// Copies an operation's tensors to memory that MPI can access, and back.
///
/// Tensors on the CPU are passed unchanged, and so are tensors on a GPU if the
/// operation consists only of messages and MPI is CUDA-aware. Otherwise pinned
/// host memory replaces the tensors. (The non-blocking collectives of a
/// CUDA-aware Open MPI do not accept GPU memory.)
class Staging {
 public:
  /// Declares that the operation consists only of messages.
  void messages() {
    messages_ = true;
  }

  /// The tensor that MPI reads (`input`), or reads and fills (`output`),
  /// instead of `tensor`.
  at::Tensor input(const at::Tensor& tensor);
  at::Tensor output(const at::Tensor& tensor);

  /// Call this after the last tensor.
  void close();

  /// Whether earlier work on the caller's stream is complete, so that MPI may
  /// start.
  bool ready() const;

  /// Starts the copies back. Call this once, after MPI has completed.
  void finish();

  /// Makes the current stream wait for these copies.
  void synchronize() const;

  /// Calls `function` while the current streams wait for these copies.
  void on_streams(const std::function<void()>& function) const;

  /// The GPU of the tensors; `std::nullopt` for the CPU.
  std::optional<at::Device> device() const;

 private:
  struct Cuda;
  bool messages_ = false;
  std::shared_ptr<Cuda> cuda_;
};

} // namespace ddp::backends::mpi
