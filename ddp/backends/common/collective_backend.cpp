#include <ddp/backends/common/collective_backend.h>

#include <ddp/internal/check.h>

namespace ddp::backends {

using WorkPtr = CollectiveBackend::WorkPtr;

CollectiveBackend::CollectiveBackend(
    const char* name,
    int rank,
    int size,
    std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size),
      name_(name),
      arguments_(name, rank, size),
      timeout_(timeout) {}

const std::string CollectiveBackend::getBackendName() const {
  return name_;
}

c10::intrusive_ptr<c10d::Backend::Options> CollectiveBackend::
    getBackendOptions() {
  return c10::make_intrusive<Options>(name_, timeout_);
}

void CollectiveBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
}

void CollectiveBackend::setSequenceNumberForGroup() {} // 0 on every rank

std::chrono::milliseconds CollectiveBackend::timeout_of(
    const Call& call) const {
  return call.timeout.count() > 0 ? call.timeout : timeout_.load();
}

void CollectiveBackend::check(
    const Call& call,
    const Tensors& inputs,
    const Tensors& outputs) const {
  for (const auto& tensor : inputs) {
    arguments_.check_contiguous(call.name, tensor);
    arguments_.check_same_dtype(call.name, tensor, outputs);
  }
  for (const auto& tensor : outputs) {
    arguments_.check_contiguous(call.name, tensor);
  }
}

CollectiveBackend::Exchange CollectiveBackend::all_gather(
    const Call& call,
    const at::Tensor& input,
    const Tensors& outputs) const {
  check(call, {input}, outputs);
  DDP_CHECK_VALUE(
      outputs[rank_].numel() == input.numel(),
      "{}: the input of rank {} has {} elements, but its output has {}",
      arguments_.over(call.name),
      rank_,
      input.numel(),
      outputs[rank_].numel());
  return {{input}, outputs, input.scalar_type()};
}

WorkPtr CollectiveBackend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  const Call call{c10d::OpType::ALLGATHER, "all_gather", options};
  const auto& list = arguments_.only_list(call.name, outputs);
  return exchange(
      call,
      {{all_gather(call, arguments_.only(call.name, inputs), list)}, list});
}

WorkPtr CollectiveBackend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  const Call call{
      c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options};
  return all_gather_into(call, output, input);
}

WorkPtr CollectiveBackend::all_gather_into(
    const Call& call,
    const at::Tensor& output,
    const at::Tensor& input) {
  const auto parts = arguments_.equal_parts(call.name, output, input.numel());
  return exchange(call, {{all_gather(call, input, parts)}, {output}});
}

WorkPtr CollectiveBackend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  const Call call{c10d::OpType::GATHER, "gather", options};
  const auto root = options.rootRank;
  arguments_.check_root(call.name, root);
  const auto& own = arguments_.only(call.name, inputs);
  Tensors to_ranks(size_);
  to_ranks[root] = own;
  Tensors from_ranks(size_);
  Tensors filled;
  if (rank_ == root) {
    filled = from_ranks = arguments_.only_list(call.name, outputs);
  } else {
    arguments_.check_no_lists(call.name, outputs);
  }
  check(call, {own}, filled);
  return exchange(
      call, {{{to_ranks, from_ranks, own.scalar_type(), root}}, filled});
}

WorkPtr CollectiveBackend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  const Call call{c10d::OpType::SCATTER, "scatter", options};
  const auto root = options.rootRank;
  arguments_.check_root(call.name, root);
  const auto& own = arguments_.only(call.name, outputs);
  Tensors to_ranks(size_);
  Tensors from_ranks(size_);
  from_ranks[root] = own;
  if (rank_ == root) {
    to_ranks = arguments_.only_list(call.name, inputs);
    check(call, to_ranks, {own});
  } else {
    arguments_.check_no_lists(call.name, inputs);
    check(call, {}, {own});
  }
  return exchange(
      call, {{{to_ranks, from_ranks, own.scalar_type(), root}}, {own}});
}

WorkPtr CollectiveBackend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  const Call call{c10d::OpType::ALLTOALL_BASE, "all_to_all_single", options};
  check(call, {input}, {output});
  return exchange(
      call,
      {{{arguments_.parts(call.name, input, input_sizes),
         arguments_.parts(call.name, output, output_sizes),
         input.scalar_type()}},
       {output}});
}

WorkPtr CollectiveBackend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  const Call call{c10d::OpType::ALLTOALL, "all_to_all", options};
  arguments_.check_list(call.name, inputs.size());
  arguments_.check_list(call.name, outputs.size());
  check(call, inputs, outputs);
  return exchange(
      call, {{{inputs, outputs, inputs.front().scalar_type()}}, outputs});
}

WorkPtr CollectiveBackend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  const Call call{c10d::OpType::ALLREDUCE, "all_reduce", options};
  const auto& tensor = arguments_.only(call.name, tensors);
  return tensor.is_sparse()
      ? sparse_sum(
            {c10d::OpType::_ALLREDUCE_SPARSE, call.name, options},
            tensor,
            options.reduceOp)
      : all_reduce(call, tensor, options.reduceOp);
}

CollectiveBackend::Part CollectiveBackend::part(
    const Call& call,
    const at::Tensor& output,
    const Tensors& inputs) const {
  check(call, inputs, {output});
  DDP_CHECK_VALUE(
      output.numel() == inputs[rank_].numel(),
      "{}: the output of rank {} has {} elements, but its part of the input "
      "has {}",
      arguments_.over(call.name),
      rank_,
      output.numel(),
      inputs[rank_].numel());
  return {output, inputs};
}

WorkPtr CollectiveBackend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  const Call call{c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options};
  const auto& output = arguments_.only(call.name, outputs);
  const auto& list = arguments_.only_list(call.name, inputs);
  return reduce_parts(call, part(call, output, list), options.reduceOp);
}

WorkPtr CollectiveBackend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  const Call call{
      c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options};
  const auto parts = arguments_.equal_parts(call.name, input, output.numel());
  return reduce_parts(call, part(call, output, parts), options.reduceOp);
}

} // namespace ddp::backends
