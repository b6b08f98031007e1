#pragma once

#include <ddp/backends/common/arguments.h>
#include <ddp/backends/common/reduction.h>
#include <ddp/backends/shm/engine.h>
#include <ddp/backends/shm/exchange.h>
#include <ddp/backends/shm/memory/mailbox.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::backends::shm {

/// c10d's collectives for CPU tensors of ranks that share a host. Tensors that
/// are reduced, broadcast, sent or received may have any dense layout, the same
/// on all ranks; others are contiguous. An all-reduce by SUM takes sparse COO
/// tensors as well. Reductions are in the order of the ranks: their bits are
/// the same on all ranks and in each run.
///
/// Tensors that `allocateTensor` made are reduced in place. An operation that
/// fails on one rank breaks the group on all.
class Backend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  Backend(
      std::unique_ptr<Team> team,
      std::shared_ptr<Memory> memory,
      std::chrono::milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;
  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  /// A tensor of `size` elements on the CPU, in memory that all ranks share.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  /// Breaks the group on all ranks.
  void abort() override;
  /// Which of these has ended, in words, or nothing.
  std::string ended_rank(const std::vector<int64_t>& ranks) const;

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

  /// The message is copied at once; it may be of any size.
  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  /// Rank 0 throws with the ranks that did not come in time.
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;

 private:
  using Parts = std::vector<std::function<std::unique_ptr<Collective>()>>;

  /// An operation that the caller is putting together.
  Task task(
      c10d::OpType type,
      const char* name,
      std::chrono::milliseconds timeout,
      bool async) const;
  WorkPtr launch(Task task);

  /// Throws `c10::ValueError` where the tensor is not on the CPU, or not dense.
  void input(Task& task, const at::Tensor& tensor) const;
  void output(Task& task, const at::Tensor& tensor) const;
  void check_input(const Task& task, const at::Tensor& tensor) const;

  std::unique_ptr<Collective> exchange(
      const Task& task,
      const at::Tensor& like,
      Tensors to_ranks,
      Tensors from_ranks,
      int64_t root = -1) const;
  /// Checks what goes in and comes out of an exchange, and notes it.
  void note_exchange(Task& task, const Tensors& inputs, const Tensors& outputs)
      const;
  std::unique_ptr<Collective> all_gather(
      Task& task,
      const Tensors& outputs,
      const at::Tensor& input) const;
  std::unique_ptr<Collective> all_reduce(
      Task& task,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  std::unique_ptr<Collective> all_reduce_sparse(
      Task& task,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  std::unique_ptr<Collective> reduce_scatter(
      Task& task,
      const at::Tensor& output,
      const Tensors& inputs,
      const c10d::ReduceOp& op) const;
  WorkPtr receive(
      const char* name,
      const Tensors& tensors,
      int source,
      int tag,
      std::chrono::milliseconds timeout);
  void check_usable(const char* name) const;
  Team& team() const {
    return engine_->team();
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Memory> memory_;
  const std::shared_ptr<Mailbox> mailbox_;
  const Arguments arguments_;
  std::atomic<std::chrono::milliseconds> timeout_;
};

} // namespace ddp::backends::shm
