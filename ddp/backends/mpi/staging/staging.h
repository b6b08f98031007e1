#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

namespace ddp::backends::mpi {

/// Brings the tensors of one operation to where MPI reaches them, and back.
///
/// Tensors on the CPU are passed as they are. Those on a GPU are too where the
/// operation is made of messages only and MPI is CUDA-aware; else pinned host
/// memory stands in for them. (Open MPI's non-blocking collectives do not take
/// GPU memory even where it is CUDA-aware.)
class Staging {
 public:
  /// Says that the operation is made of messages.
  void messages() {
    messages_ = true;
  }

  /// What MPI is to read, or to read and fill, in the place of `tensor`.
  at::Tensor input(const at::Tensor& tensor);
  at::Tensor output(const at::Tensor& tensor);

  /// To be called after the last of these.
  void close();

  /// Whether MPI may start: what the caller's stream did before is done.
  bool ready() const;

  /// Starts the copies back. To be called once, after MPI.
  void finish();

  /// Lets the current stream wait for these copies.
  void synchronize() const;

  /// Calls `function` with streams current that follow these copies.
  void on_streams(const std::function<void()>& function) const;

  /// The GPU; none for the CPU.
  std::optional<at::Device> device() const;

 private:
  struct Cuda;
  bool messages_ = false;
  std::shared_ptr<Cuda> cuda_;
};

} // namespace ddp::backends::mpi
