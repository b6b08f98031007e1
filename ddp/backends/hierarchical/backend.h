#pragma once

#include <ddp/backends/common/arguments.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/backends/hierarchical/queue.h>
#include <ddp/backends/hierarchical/steps.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::backends::hierarchical {

/// Collectives that pass each host's first rank. They run one after another on
/// a thread of the backend's own, so that its parts see them in the same order
/// on all ranks. A failure breaks it. Destroyed amid operations it breaks them
/// off.
class Backend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Timeout = std::chrono::milliseconds;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  Backend(const std::vector<std::string>& hosts, int rank, const Parts& parts);
  ~Backend() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void abort() override;
  void shutdown() override;

  // Through the hosts' first ranks.
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
  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allgather(TensorLists&, Tensors&, const c10d::AllgatherOptions&)
      override;
  WorkPtr _allgather_base(
      at::Tensor&,
      at::Tensor&,
      const c10d::AllgatherOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;

  // Directly.
  WorkPtr allgather_coalesced(
      TensorLists&,
      Tensors&,
      const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors&,
      Tensors&,
      const c10d::AllgatherOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors&,
      Tensors&,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr alltoall_base(
      at::Tensor&,
      at::Tensor&,
      std::vector<int64_t>&,
      std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;

 private:
  /// Throws where the backend is broken.
  void check_usable(const char* name) const;
  c10d::Backend& direct(const char* name) const;
  /// The same for what all ranks call.
  c10d::Backend& collectively(const char* name);
  WorkPtr push(
      c10d::OpType type,
      const char* name,
      const Tensors& outputs,
      std::function<void()> body);

  /// The elements of a tensor to be reduced.
  at::Tensor operand(
      const char* name,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  /// The elements of a contiguous tensor that has to have so many.
  at::Tensor row(const char* name, const at::Tensor& tensor, int64_t numel)
      const;
  /// `result`: the outputs as the caller knows them.
  WorkPtr all_gather(
      c10d::OpType type,
      const char* name,
      const Tensors& result,
      const Tensors& outputs,
      const at::Tensor& input,
      Timeout timeout);
  WorkPtr reduce_scatter(
      c10d::OpType type,
      const char* name,
      const at::Tensor& output,
      const Tensors& inputs,
      const c10d::ReduceScatterOptions& options);

  std::shared_ptr<Steps> steps_;
  const Arguments arguments_;
  /// Whether collectives have gone directly since the last barrier.
  std::atomic<bool> sent_directly_{false};
  std::shared_ptr<Queue> queue_;
};

} // namespace ddp::backends::hierarchical
