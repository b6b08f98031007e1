#pragma once

#include <ddp/backends/common/arguments.h>
#include <ddp/backends/common/forwarding_backend.h>
#include <ddp/backends/hierarchical.h>
#include <ddp/backends/hierarchical/queue.h>
#include <ddp/backends/hierarchical/steps.h>

namespace ddp::backends::hierarchical {

/// Collectives through each host's first rank. The collectives run one after
/// another on other threads, so each sub-backend receives calls in the same
/// order on all ranks. A failure breaks the backend. The destructor aborts
/// running operations.
class Backend final : public ForwardingBackend {
 public:
  using Timeout = std::chrono::milliseconds;

  Backend(
      const std::vector<std::string>& hosts,
      int rank,
      const SubBackends& sub_backends);
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

  // These collectives use the hosts' first ranks, unless `flat` is as fast.
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
  // These collectives send dtypes that gloo lacks as bytes, also in the results
  // of the works.
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override;

 private:
  /// Throws if the backend is broken.
  void check_usable(const char* name) const;
  // The caller's thread launches these calls, so the sub-backend receives them
  // in the same order on all ranks.
  WorkPtr forward(const debug::Call& call, Launch launch) override;
  WorkPtr forward_message(const debug::Call& call, Launch launch) override;
  WorkPtr push(
      c10d::OpType type,
      const char* name,
      const Tensors& outputs,
      std::function<void()> body);

  /// A flat view of a dense tensor without gaps, in memory order. Throws
  /// `c10::ValueError` if the tensor is not on the CPU.
  at::Tensor elements(const char* name, const at::Tensor& tensor) const;
  /// The tensor, or its bytes if gloo lacks the dtype.
  at::Tensor sendable(const char* name, const at::Tensor& tensor) const;
  /// The same for lists of tensors, which must have the dtype of `own`.
  TensorLists sendable(
      const char* name,
      const at::Tensor& own,
      const TensorLists& lists) const;
  /// The flat view of a tensor to reduce.
  at::Tensor operand(
      const char* name,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) const;
  /// The flat view of a contiguous tensor that must have `numel` elements.
  at::Tensor row(const char* name, const at::Tensor& tensor, int64_t numel)
      const;
  /// `result` contains the outputs, as the caller passed them.
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
  /// Whether collectives have used `flat` since the last barrier.
  std::atomic<bool> sent_flat_{false};
  std::shared_ptr<Queue> queue_;
};

} // namespace ddp::backends::hierarchical
