#include <ddp/backends/common/forwarding_backend.h>

#include <ddp/backends/common/arguments.h>

#include <c10/util/Exception.h>

namespace ddp::backends {

using WorkPtr = ForwardingBackend::WorkPtr;

namespace {

using debug::call_of;
using debug::uneven_call_of;

std::string name_of(const c10d::ReduceOp& op) {
  return reduction_name(op.op_);
}

std::string root(int64_t rank) {
  return c10::str("root ", rank);
}

/// The tensors of the first list: there is one for each of a rank's GPUs, and
/// that is one.
at::TensorList first_of(const ForwardingBackend::TensorLists& lists) {
  return lists.empty() ? at::TensorList() : at::TensorList(lists.front());
}

} // namespace

WorkPtr ForwardingBackend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  return forward(
      call_of("broadcast", tensors, root(options.rootRank)),
      [&](c10d::Backend& to) { return to.broadcast(tensors, options); });
}

WorkPtr ForwardingBackend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  return forward(
      call_of("all_reduce", tensors, name_of(options.reduceOp)),
      [&](c10d::Backend& to) { return to.allreduce(tensors, options); });
}

WorkPtr ForwardingBackend::allreduce_sparse(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  return forward(
      call_of("all_reduce_sparse", tensors, name_of(options.reduceOp)),
      [&](c10d::Backend& to) { return to.allreduce_sparse(tensors, options); });
}

WorkPtr ForwardingBackend::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  return forward(
      call_of("all_reduce_coalesced", tensors, name_of(options.reduceOp)),
      [&](c10d::Backend& to) {
        return to.allreduce_coalesced(tensors, options);
      });
}

WorkPtr ForwardingBackend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  const auto arguments =
      name_of(options.reduceOp) + ", " + root(options.rootRank);
  return forward(call_of("reduce", tensors, arguments), [&](c10d::Backend& to) {
    return to.reduce(tensors, options);
  });
}

WorkPtr ForwardingBackend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  // Parts may differ in length; what is to come is the same on all ranks.
  return forward(
      call_of("all_gather", first_of(outputs)), [&](c10d::Backend& to) {
        return to.allgather(outputs, inputs, options);
      });
}

WorkPtr ForwardingBackend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return forward(
      call_of("all_gather_into_tensor", {output}), [&](c10d::Backend& to) {
        return to._allgather_base(output, input, options);
      });
}

WorkPtr ForwardingBackend::allgather_coalesced(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return forward(
      call_of("all_gather_coalesced", inputs), [&](c10d::Backend& to) {
        return to.allgather_coalesced(outputs, inputs, options);
      });
}

WorkPtr ForwardingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return forward(
      call_of("all_gather_into_tensor_coalesced", inputs),
      [&](c10d::Backend& to) {
        return to.allgather_into_tensor_coalesced(outputs, inputs, options);
      });
}

WorkPtr ForwardingBackend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  return forward(
      uneven_call_of("gather", inputs, root(options.rootRank)),
      [&](c10d::Backend& to) { return to.gather(outputs, inputs, options); });
}

WorkPtr ForwardingBackend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  return forward(
      uneven_call_of("scatter", outputs, root(options.rootRank)),
      [&](c10d::Backend& to) { return to.scatter(outputs, inputs, options); });
}

WorkPtr ForwardingBackend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  return forward(
      call_of("reduce_scatter", first_of(inputs), name_of(options.reduceOp)),
      [&](c10d::Backend& to) {
        return to.reduce_scatter(outputs, inputs, options);
      });
}

WorkPtr ForwardingBackend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return forward(
      call_of("reduce_scatter_tensor", {input}, name_of(options.reduceOp)),
      [&](c10d::Backend& to) {
        return to._reduce_scatter_base(output, input, options);
      });
}

WorkPtr ForwardingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  const auto call = call_of(
      "reduce_scatter_tensor_coalesced", inputs, name_of(options.reduceOp));
  return forward(call, [&](c10d::Backend& to) {
    return to.reduce_scatter_tensor_coalesced(outputs, inputs, options);
  });
}

WorkPtr ForwardingBackend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  return forward(
      uneven_call_of("all_to_all_single", {input}), [&](c10d::Backend& to) {
        return to.alltoall_base(
            output, input, output_sizes, input_sizes, options);
      });
}

WorkPtr ForwardingBackend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  return forward(uneven_call_of("all_to_all", inputs), [&](c10d::Backend& to) {
    return to.alltoall(outputs, inputs, options);
  });
}

WorkPtr ForwardingBackend::barrier(const c10d::BarrierOptions& options) {
  return forward(call_of("barrier", {}), [&](c10d::Backend& to) {
    return to.barrier(options);
  });
}

void ForwardingBackend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool wait_all_ranks) {
  forward(call_of("monitored_barrier", {}), [&](c10d::Backend& to) -> WorkPtr {
    to.monitoredBarrier(options, wait_all_ranks);
    return nullptr;
  });
}

WorkPtr ForwardingBackend::send(Tensors& tensors, int peer, int tag) {
  return forward_message(
      call_of("send", tensors, c10::str("to ", peer)),
      [&](c10d::Backend& to) { return to.send(tensors, peer, tag); });
}

WorkPtr ForwardingBackend::recv(Tensors& tensors, int peer, int tag) {
  return forward_message(
      call_of("recv", tensors, c10::str("from ", peer)),
      [&](c10d::Backend& to) { return to.recv(tensors, peer, tag); });
}

WorkPtr ForwardingBackend::recvAnysource(Tensors& tensors, int tag) {
  return forward_message(
      call_of("recv_anysource", tensors),
      [&](c10d::Backend& to) { return to.recvAnysource(tensors, tag); });
}

} // namespace ddp::backends
