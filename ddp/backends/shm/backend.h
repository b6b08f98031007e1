#pragma once

#include <ddp/backends/common/collective_backend.h>
#include <ddp/backends/common/reduction.h>
#include <ddp/backends/shm/engine.h>
#include <ddp/backends/shm/memory/memory.h>

namespace ddp::backends::shm {

/// c10d's collectives for CPU tensors of ranks that share a host. Tensors that
/// are reduced or broadcast may have any dense layout, the same on all ranks;
/// other tensors must be contiguous. An all-reduce by SUM also accepts sparse
/// COO tensors. Reductions add in rank order, so results are bit-identical on
/// all ranks and in every run. Send and receive are not supported.
///
/// Tensors from `allocateTensor` are reduced in place. An operation that fails
/// on one rank breaks the group on all ranks.
class Backend final : public CollectiveBackend {
 public:
  Backend(
      std::unique_ptr<Context> context,
      std::shared_ptr<Memory> memory,
      std::chrono::milliseconds timeout);
  ~Backend() override;

  uint64_t getSequenceNumberForGroup() override;
  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  /// A tensor of `size` elements on the CPU, in memory that all ranks share.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  /// Breaks the group on all ranks.
  void abort() override;
  /// Returns a message about one of these ranks that has ended; empty if none
  /// has ended.
  std::string ended_rank(const std::vector<int64_t>& ranks) const;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  /// A barrier whose timeout error names the ranks that did not arrive.
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;

 private:
  /// A new operation, to which the caller adds its tensors.
  Task task(const Call& call) const;

  /// Throws `c10::ValueError` if the tensor is not on the CPU or is not dense.
  void add(Task& task, const at::Tensor& tensor) const;

  WorkPtr exchange(const Call& call, Plan plan) override;
  WorkPtr all_reduce(
      const Call& call,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) override;
  WorkPtr reduce_parts(
      const Call& call,
      const Part& part,
      const c10d::ReduceOp& op) override;

  Context& context() const {
    return engine_->context();
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Memory> memory_;
};

} // namespace ddp::backends::shm
