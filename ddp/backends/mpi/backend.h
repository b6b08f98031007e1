#pragma once

#include <ddp/backends/common/collective_backend.h>
#include <ddp/backends/mpi/engine.h>

namespace ddp::backends::mpi {

/// c10d's collectives over a separate communicator, for dense tensors on the
/// CPU or a CUDA GPU. Tensors that are reduced, broadcast, sent or received may
/// have any dense layout, the same on all ranks; other tensors must be
/// contiguous. An all-reduce by SUM also accepts a sparse COO tensor on the
/// CPU.
///
/// An operation that does not complete within its timeout breaks the backend:
/// MPI can neither cancel the operation nor let later operations overtake it.
/// Later calls throw immediately.
///
/// Only the program's threads may call MPI if the program initialized MPI
/// without MPI_THREAD_MULTIPLE. Collectives are then complete when the call
/// returns, except within `Engine::defer`. These, and sends and receives,
/// progress only within `wait`, `isCompleted` or later calls.
class Backend final : public CollectiveBackend {
 public:
  /// `largest` is the maximum number of elements for one MPI call.
  Backend(
      std::shared_ptr<Channel> channel,
      std::chrono::milliseconds timeout,
      int64_t largest);

  uint64_t getSequenceNumberForGroup() override;
  /// Breaks the backend; running operations end by themselves or at their
  /// timeout.
  void abort() override;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  /// On rank 0, throws an error that names the ranks that did not arrive in
  /// time.
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;
  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;

 private:
  /// A new operation, to which the caller adds steps.
  Task task(const Call& call) const;
  WorkPtr launch(Task task);

  /// Throws `c10::ValueError` if MPI cannot use `tensor`.
  void add(Task& task, const at::Tensor& tensor) const;
  /// The tensor that MPI reads (`input`), or reads and fills (`output`),
  /// instead of `tensor`.
  at::Tensor input(Task& task, const at::Tensor& tensor) const;
  at::Tensor output(Task& task, const at::Tensor& tensor) const;

  WorkPtr exchange(const Call& call, Plan plan) override;
  WorkPtr all_gather_into(
      const Call& call,
      const at::Tensor& output,
      const at::Tensor& input) override;
  WorkPtr all_reduce(
      const Call& call,
      const at::Tensor& tensor,
      const c10d::ReduceOp& reduce_op) override;
  WorkPtr reduce_parts(
      const Call& call,
      const Part& part,
      const c10d::ReduceOp& reduce_op) override;
  /// Sends the tensor to a rank, or receives it from one rank or from any rank,
  /// depending on the type of the call.
  WorkPtr message(
      const Call& call,
      const at::Tensor& tensor,
      int peer,
      int tag);
  WorkPtr checked_message(
      const Call& call,
      const Tensors& tensors,
      int peer,
      int tag);

  const std::shared_ptr<Channel> channel_;
  const int64_t largest_;
};

} // namespace ddp::backends::mpi
