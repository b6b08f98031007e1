#pragma once

#include <ddp/backends/common/arguments.h>
#include <ddp/backends/mpi/engine.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>
#include <vector>

namespace ddp::backends::mpi {

/// c10d's collectives over a communicator of its own, for dense tensors on the
/// CPU or a CUDA GPU. Tensors that are reduced, broadcast, sent or received may
/// have any dense layout, the same on all ranks; others are contiguous. An
/// all-reduce by SUM takes a sparse COO tensor on the CPU as well.
///
/// An operation that does not complete within its timeout breaks the backend:
/// MPI can neither cancel it nor let others pass it. Later calls throw at once.
///
/// Where MPI may be called by the program's own threads only (it initialised
/// MPI without MPI_THREAD_MULTIPLE), collectives end before the call returns,
/// and sends and receives within `wait`, `isCompleted` or later calls.
class Backend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  /// `largest`: how many elements one call of MPI may get.
  Backend(
      std::shared_ptr<Channel> channel,
      std::chrono::milliseconds timeout,
      int64_t largest);

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;
  /// Breaks the backend; what is under way ends by itself or at its timeout.
  void abort() override;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allgather(TensorLists&, Tensors&, const c10d::AllgatherOptions&)
      override;
  WorkPtr _allgather_base(
      at::Tensor&,
      at::Tensor&,
      const c10d::AllgatherOptions&) override;
  WorkPtr allgather_coalesced(
      TensorLists&,
      Tensors&,
      const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors&,
      Tensors&,
      const c10d::AllgatherOptions&) override;
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr alltoall_base(
      at::Tensor&,
      at::Tensor&,
      std::vector<int64_t>&,
      std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;

  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&)
      override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr reduce_scatter(
      Tensors&,
      TensorLists&,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor&,
      at::Tensor&,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors&,
      Tensors&,
      const c10d::ReduceScatterOptions&) override;

  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  /// Rank 0 throws with the ranks that did not come in time.
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;

 private:
  /// An operation that the caller is putting together.
  Task task(c10d::OpType, const char* name, std::chrono::milliseconds timeout)
      const;
  WorkPtr launch(Task task);

  /// Throws `c10::ValueError` where MPI cannot use `tensor`.
  void add(Task& task, const at::Tensor& tensor) const;
  /// What MPI reads, or reads and fills, in the place of `tensor`.
  at::Tensor input(Task& task, const at::Tensor& tensor) const;
  at::Tensor output(Task& task, const at::Tensor& tensor) const;
  /// The same for tensors that must be contiguous.
  at::Tensor flat_input(Task& task, const at::Tensor& tensor) const;
  at::Tensor flat_output(Task& task, const at::Tensor& tensor) const;

  /// A gather or scatter: `own` is each rank's, `lists` the root's.
  WorkPtr exchange_with_root(
      Task task,
      int64_t root,
      const Tensors& own,
      const TensorLists& lists);
  /// Adds to `task` a message to each rank and one from each; undefined: none.
  void exchange(Task& task, Tensors to_ranks, Tensors from_ranks) const;
  void all_gather(Task& task, const Tensors& outputs, const at::Tensor& tensor)
      const;
  void all_gather_into(
      Task& task,
      const at::Tensor& output,
      const at::Tensor& input) const;
  void all_reduce(
      Task& task,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  void all_reduce_sparse(
      Task& task,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  /// `inputs`: each rank's part.
  void reduce_scatter(
      Task& task,
      const at::Tensor& output,
      const Tensors& inputs,
      const c10d::ReduceOp& op) const;
  void reduce_scatter_from(
      Task& task,
      const at::Tensor& output,
      const at::Tensor& input,
      const c10d::ReduceOp& op) const;
  WorkPtr message(
      c10d::OpType type,
      const Tensors& tensors,
      int peer,
      int tag,
      std::chrono::milliseconds timeout);

  const std::shared_ptr<Channel> channel_;
  const Arguments arguments_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const int64_t largest_;
};

} // namespace ddp::backends::mpi
