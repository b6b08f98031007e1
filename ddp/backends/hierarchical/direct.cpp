// What would gain nothing on the way through the hosts' first ranks. Called on
// the caller's thread only, so that the part sees the same order on all ranks.

#include <ddp/backends/hierarchical/backend.h>

namespace ddp::backends::hierarchical {

Backend::WorkPtr Backend::allgather_coalesced(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return collectively("all_gather_coalesced")
      .allgather_coalesced(outputs, inputs, options);
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return collectively("all_gather_into_tensor_coalesced")
      .allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  return collectively("reduce_scatter_tensor_coalesced")
      .reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPtr Backend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  return collectively("gather").gather(outputs, inputs, options);
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  return collectively("scatter").scatter(outputs, inputs, options);
}

Backend::WorkPtr Backend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  return collectively("all_to_all_single")
      .alltoall_base(output, input, output_sizes, input_sizes, options);
}

Backend::WorkPtr Backend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  return collectively("all_to_all").alltoall(outputs, inputs, options);
}

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  return direct("send").send(tensors, peer, tag);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  return direct("recv").recv(tensors, peer, tag);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return direct("recv_anysource").recvAnysource(tensors, tag);
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool wait_all_ranks) {
  direct("monitored_barrier").monitoredBarrier(options, wait_all_ranks);
}

} // namespace ddp::backends::hierarchical
