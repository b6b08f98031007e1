// Collectives that reduce.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/operators.h>

#include <c10/util/Exception.h>

#include <algorithm>

namespace ddp::backends::mpi {
namespace {

/// Calls `reduce(begin, count)` for pieces of `tensor`, in bytes from its begin
/// and in MPI's elements, that MPI can count.
template <typename Reduce>
void in_pieces(
    const at::Tensor& tensor,
    const Operator& op,
    int64_t largest,
    Reduce&& reduce) {
  const int64_t total = tensor.numel() * op.per_element;
  const auto size = static_cast<int64_t>(tensor.itemsize()) / op.per_element;
  for (int64_t begin = 0; begin < total; begin += largest) {
    reduce(begin * size, static_cast<int>(std::min(largest, total - begin)));
  }
}

char* data_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

void divide_if_mean(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op,
    int size) {
  if (op.op_ == c10d::ReduceOp::AVG) {
    task.finish.push_back([=]() mutable { tensor.div_(size); });
  }
}

} // namespace

Backend::WorkPtr Backend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  auto task =
      this->task(c10d::OpType::ALLREDUCE, "all_reduce", options.timeout);
  const auto& tensor = arguments_.only(task.name, tensors);
  tensor.is_sparse() ? all_reduce_sparse(task, tensor, options.reduceOp)
                     : all_reduce(task, tensor, options.reduceOp);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLREDUCE_COALESCED,
      "all_reduce_coalesced",
      options.timeout);
  for (const auto& tensor : tensors) {
    all_reduce(task, tensor, options.reduceOp);
  }
  return launch(std::move(task));
}

void Backend::all_reduce(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& reduce_op) const {
  const auto memory = output(task, tensor);
  const auto op = operator_for(tensor.scalar_type(), reduce_op);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    in_pieces(memory, op, requests.largest(), [&](int64_t begin, int count) {
      check_mpi(
          MPI_Iallreduce(
              MPI_IN_PLACE,
              data_of(memory) + begin,
              count,
              op.type,
              op.op,
              channel->comm->get(),
              requests.next()),
          "MPI_Iallreduce");
    });
  });
  divide_if_mean(task, memory, reduce_op, size_);
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  auto task = this->task(c10d::OpType::REDUCE, "reduce", options.timeout);
  arguments_.check_root(task.name, options.rootRank);
  const auto& tensor = arguments_.only(task.name, tensors);
  const bool is_root = rank_ == options.rootRank;
  const auto memory = is_root ? output(task, tensor) : input(task, tensor);
  const auto op = operator_for(tensor.scalar_type(), options.reduceOp);
  const auto root = static_cast<int>(options.rootRank);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    in_pieces(memory, op, requests.largest(), [&](int64_t begin, int count) {
      auto* data = data_of(memory) + begin;
      check_mpi(
          MPI_Ireduce(
              is_root ? MPI_IN_PLACE : data,
              is_root ? data : nullptr,
              count,
              op.type,
              op.op,
              root,
              channel->comm->get(),
              requests.next()),
          "MPI_Ireduce");
    });
  });
  if (is_root) {
    divide_if_mean(task, memory, options.reduceOp, size_);
  }
  return launch(std::move(task));
}

Backend::WorkPtr Backend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options.timeout);
  reduce_scatter(
      task,
      arguments_.only(task.name, outputs),
      arguments_.only_list(task.name, inputs),
      options.reduceOp);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::_REDUCE_SCATTER_BASE,
      "reduce_scatter_tensor",
      options.timeout);
  reduce_scatter_from(task, output, input, options.reduceOp);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::COALESCED,
      "reduce_scatter_tensor_coalesced",
      options.timeout);
  arguments_.check_pairs(task.name, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    reduce_scatter_from(task, outputs[i], inputs[i], options.reduceOp);
  }
  return launch(std::move(task));
}

void Backend::reduce_scatter_from(
    Task& task,
    const at::Tensor& output,
    const at::Tensor& input,
    const c10d::ReduceOp& reduce_op) const {
  TORCH_CHECK_VALUE(
      input.is_contiguous() && input.numel() == output.numel() * size_,
      task.name,
      " over mpi takes a contiguous input of ",
      size_,
      " times the output's ",
      output.numel(),
      " elements, got sizes ",
      input.sizes());
  reduce_scatter(task, output, input.view(-1).tensor_split(size_), reduce_op);
}

void Backend::reduce_scatter(
    Task& task,
    const at::Tensor& output,
    const Tensors& inputs,
    const c10d::ReduceOp& reduce_op) const {
  TORCH_CHECK_VALUE(
      output.numel() == inputs[rank_].numel(),
      task.name,
      " over mpi: the output of rank ",
      rank_,
      " has ",
      output.numel(),
      " elements, its part of the input ",
      inputs[rank_].numel());
  arguments_.check_same_dtype(task.name, output, inputs);
  const auto op = operator_for(output.scalar_type(), reduce_op);
  const auto target = flat_output(task, output);
  for (int root = 0; root < size_; ++root) {
    const auto source = flat_input(task, inputs[root]);
    task.steps.push_back([=, channel = channel_](Requests& requests) {
      const bool is_root = root == channel->rank;
      in_pieces(source, op, requests.largest(), [&](int64_t begin, int count) {
        const auto* from = data_of(source) + begin;
        auto* to = is_root ? data_of(target) + begin : nullptr;
        check_mpi(
            MPI_Ireduce(
                from == to ? MPI_IN_PLACE : from,
                to,
                count,
                op.type,
                op.op,
                root,
                channel->comm->get(),
                requests.next()),
            "MPI_Ireduce");
      });
    });
  }
  divide_if_mean(task, target, reduce_op, size_);
}

} // namespace ddp::backends::mpi
