#include <ddp/debug/backend.h>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <type_traits>

// What is recorded on the way to the other backend.

namespace ddp::debug {
namespace {

using flight_recorder::State;

std::string name_of(const c10d::ReduceOp& op) {
  using Op = c10d::ReduceOp;
  switch (op.op_) {
    case Op::SUM:
      return "SUM";
    case Op::AVG:
      return "AVG";
    case Op::PRODUCT:
      return "PRODUCT";
    case Op::MIN:
      return "MIN";
    case Op::MAX:
      return "MAX";
    case Op::BAND:
      return "BAND";
    case Op::BOR:
      return "BOR";
    case Op::BXOR:
      return "BXOR";
    default:
      return "PREMUL_SUM";
  }
}

std::string root(int64_t rank) {
  return c10::str("root ", rank);
}

/// The tensors of the first list: there is one for each of a rank's GPUs, and
/// that is one.
at::TensorList first_of(const Backend::TensorLists& lists) {
  return lists.empty() ? at::TensorList() : at::TensorList(lists.front());
}

} // namespace

template <typename Launch>
Backend::WorkPtr Backend::recorded(uint64_t number, Launch&& launch) {
  try {
    auto work = launch();
    if (work) { // else it belongs to a coalesced one
      follow(number, *work);
    }
    return work;
  } catch (...) {
    flight_recorder::is_now(number, State::kFailed);
    throw;
  }
}

template <typename Launch>
auto Backend::collective(const Call& call, Launch&& launch) {
  const auto sequence = ++sequence_;
  const auto number = flight_recorder::began(caller_, sequence, call);
  return recorded(number, [&] {
    if (order_) {
      flight_recorder::is_now(number, State::kChecking);
      order_->check(sequence, call, number);
      flight_recorder::is_now(number, State::kStarted);
    }
    return launch();
  });
}

template <typename Launch>
Backend::WorkPtr Backend::message(const Call& call, Launch&& launch) {
  return recorded(flight_recorder::began(caller_, 0, call), launch);
}

/// NCCL's futures are complete once the GPU has been told; it has others that
/// are so once the GPU has done it, with the result as a number, 0 for success.
void Backend::follow(uint64_t number, c10d::Work& work) const {
  const bool nccl = caller_.backend == "nccl";
  try {
    const auto future = nccl ? work.getFutureResult() : work.getFuture();
    future->addCallback(
        [number, nccl](c10::ivalue::Future& result) {
          const bool failed =
              result.hasError() || (nccl && result.constValue().toInt() != 0);
          flight_recorder::is_now(
              number, failed ? State::kFailed : State::kCompleted);
        },
        /*uses_future=*/false);
  } catch (const std::exception&) { // gloo's messages have none
  }
}

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  return collective(call_of("broadcast", tensors, root(options.rootRank)), [&] {
    return inner_->broadcast(tensors, options);
  });
}

Backend::WorkPtr Backend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  return collective(
      call_of("all_reduce", tensors, name_of(options.reduceOp)),
      [&] { return inner_->allreduce(tensors, options); });
}

Backend::WorkPtr Backend::allreduce_sparse(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  return collective(
      call_of("all_reduce_sparse", tensors, name_of(options.reduceOp)),
      [&] { return inner_->allreduce_sparse(tensors, options); });
}

Backend::WorkPtr Backend::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  return collective(
      call_of("all_reduce_coalesced", tensors, name_of(options.reduceOp)),
      [&] { return inner_->allreduce_coalesced(tensors, options); });
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  const auto arguments =
      name_of(options.reduceOp) + ", " + root(options.rootRank);
  return collective(call_of("reduce", tensors, arguments), [&] {
    return inner_->reduce(tensors, options);
  });
}

Backend::WorkPtr Backend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  // Parts may differ in length; what is to come is the same on all ranks.
  return collective(call_of("all_gather", first_of(outputs)), [&] {
    return inner_->allgather(outputs, inputs, options);
  });
}

Backend::WorkPtr Backend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return collective(call_of("all_gather_into_tensor", {output}), [&] {
    return inner_->_allgather_base(output, input, options);
  });
}

Backend::WorkPtr Backend::allgather_coalesced(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return collective(call_of("all_gather_coalesced", inputs), [&] {
    return inner_->allgather_coalesced(outputs, inputs, options);
  });
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return collective(call_of("all_gather_into_tensor_coalesced", inputs), [&] {
    return inner_->allgather_into_tensor_coalesced(outputs, inputs, options);
  });
}

Backend::WorkPtr Backend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  return collective(
      uneven_call_of("gather", inputs, root(options.rootRank)),
      [&] { return inner_->gather(outputs, inputs, options); });
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  return collective(
      uneven_call_of("scatter", outputs, root(options.rootRank)),
      [&] { return inner_->scatter(outputs, inputs, options); });
}

Backend::WorkPtr Backend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  return collective(
      call_of("reduce_scatter", first_of(inputs), name_of(options.reduceOp)),
      [&] { return inner_->reduce_scatter(outputs, inputs, options); });
}

Backend::WorkPtr Backend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return collective(
      call_of("reduce_scatter_tensor", {input}, name_of(options.reduceOp)),
      [&] { return inner_->_reduce_scatter_base(output, input, options); });
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  const auto call = call_of(
      "reduce_scatter_tensor_coalesced", inputs, name_of(options.reduceOp));
  return collective(call, [&] {
    return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  });
}

Backend::WorkPtr Backend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  return collective(uneven_call_of("all_to_all_single", {input}), [&] {
    return inner_->alltoall_base(
        output, input, output_sizes, input_sizes, options);
  });
}

Backend::WorkPtr Backend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  return collective(uneven_call_of("all_to_all", inputs), [&] {
    return inner_->alltoall(outputs, inputs, options);
  });
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  return collective(
      call_of("barrier", {}), [&] { return inner_->barrier(options); });
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool wait_all_ranks) {
  collective(call_of("monitored_barrier", {}), [&]() -> WorkPtr {
    inner_->monitoredBarrier(options, wait_all_ranks);
    return nullptr;
  });
}

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  return message(call_of("send", tensors, c10::str("to ", peer)), [&] {
    return inner_->send(tensors, peer, tag);
  });
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  return message(call_of("recv", tensors, c10::str("from ", peer)), [&] {
    return inner_->recv(tensors, peer, tag);
  });
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return message(call_of("recv_anysource", tensors), [&] {
    return inner_->recvAnysource(tensors, tag);
  });
}

} // namespace ddp::debug
