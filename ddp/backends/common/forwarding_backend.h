#pragma once

#include <c10/util/FunctionRef.h>
#include <ddp/failure/call.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace ddp::backends {

/// A backend that hands its calls on to another.
class ForwardingBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&)
      override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
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
  WorkPtr alltoall_base(
      at::Tensor&,
      at::Tensor&,
      std::vector<int64_t>&,
      std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all_ranks)
      override;
  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;

 protected:
  using Launch = c10::function_ref<WorkPtr(c10d::Backend& to)>;

  /// Launches a collective on the other backend.
  virtual WorkPtr forward(const debug::Call& call, Launch launch) = 0;
  /// The same for a message between two ranks.
  virtual WorkPtr forward_message(const debug::Call& call, Launch launch) = 0;
};

} // namespace ddp::backends
