// Collectives that reduce.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/all_reduce.h>
#include <ddp/backends/shm/chain.h>
#include <ddp/backends/shm/sparse_sum.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace ddp::backends::shm {
namespace {

/// What each rank has for this one, a row for each.
Backend::Tensors rows_like(const at::Tensor& tensor, int size) {
  return at::empty({size, tensor.numel()}, tensor.options()).unbind();
}

/// Reduces them into `target`, by rank.
void reduce_rows(
    const Backend::Tensors& rows,
    const at::Tensor& target,
    const c10d::ReduceOp& op) {
  std::vector<const char*> sources;
  for (const auto& row : rows) {
    sources.push_back(static_cast<const char*>(row.const_data_ptr()));
  }
  Reduction(target.scalar_type(), op)(
      sources, {static_cast<char*>(target.mutable_data_ptr())}, target.numel());
  if (op.op_ == c10d::ReduceOp::AVG) {
    at::Tensor(target).div_(static_cast<int64_t>(rows.size()));
  }
}

/// Adds to what an operation does in the end.
void and_then(Task& task, std::function<void()> next) {
  task.finish = [before = std::move(task.finish), next = std::move(next)] {
    if (before) {
      before();
    }
    next();
  };
}

} // namespace

Backend::WorkPtr Backend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLREDUCE, "all_reduce", options.timeout, options.asyncOp);
  const auto& tensor = arguments_.only(task.name, tensors);
  task.collective = tensor.is_sparse()
      ? all_reduce_sparse(task, tensor, options.reduceOp)
      : all_reduce(task, tensor, options.reduceOp);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLREDUCE_COALESCED,
      "all_reduce_coalesced",
      options.timeout,
      options.asyncOp);
  std::vector<std::unique_ptr<Collective>> parts;
  for (const auto& tensor : tensors) {
    parts.push_back(all_reduce(task, tensor, options.reduceOp));
  }
  task.collective = std::make_unique<Chain>(std::move(parts));
  return launch(std::move(task));
}

std::unique_ptr<Collective> Backend::all_reduce(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) const {
  output(task, tensor);
  if (op.op_ == c10d::ReduceOp::AVG) {
    and_then(task, [tensor, size = size_] { at::Tensor(tensor).div_(size); });
  }
  return std::make_unique<AllReduce>(team(), tensor, op);
}

std::unique_ptr<Collective> Backend::all_reduce_sparse(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) const {
  TORCH_CHECK_VALUE(
      op.op_ == c10d::ReduceOp::SUM && tensor.is_cpu(),
      task.name,
      " over shm of sparse tensors is by SUM only, and on the CPU");
  const at::AutoDispatchBelowAutograd guard;
  task.bytes += static_cast<int64_t>(
      tensor._indices().nbytes() + tensor._values().nbytes());
  task.outputs.push_back(tensor);
  return std::make_unique<SparseSum>(team(), tensor);
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  auto task = this->task(
      c10d::OpType::REDUCE, "reduce", options.timeout, options.asyncOp);
  const auto root = options.rootRank;
  const auto op = options.reduceOp;
  arguments_.check_root(task.name, root);
  const auto& tensor = arguments_.only(task.name, tensors);
  const Reduction possible(tensor.scalar_type(), op);
  Tensors to_ranks(size_);
  to_ranks[root] = tensor;
  Tensors from_ranks(size_);
  if (rank_ == root) {
    output(task, tensor);
    from_ranks = rows_like(tensor, size_);
    and_then(task, [=] { reduce_rows(from_ranks, tensor, op); });
  } else {
    input(task, tensor);
  }
  task.collective = exchange(task, tensor, to_ranks, from_ranks, root);
  return launch(std::move(task));
}

std::unique_ptr<Collective> Backend::reduce_scatter(
    Task& task,
    const at::Tensor& output,
    const Tensors& inputs,
    const c10d::ReduceOp& op) const {
  note_exchange(task, inputs, {output});
  TORCH_CHECK_VALUE(
      output.numel() == inputs[rank_].numel(),
      task.name,
      " over shm: the output of rank ",
      rank_,
      " has ",
      output.numel(),
      " elements, its part of the input ",
      inputs[rank_].numel());
  const Reduction possible(output.scalar_type(), op);
  const auto rows = rows_like(output, size_);
  and_then(task, [=] { reduce_rows(rows, output, op); });
  return exchange(task, output, inputs, rows);
}

Backend::WorkPtr Backend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::REDUCE_SCATTER,
      "reduce_scatter",
      options.timeout,
      options.asyncOp);
  task.collective = reduce_scatter(
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
      options.timeout,
      options.asyncOp);
  task.collective = reduce_scatter(
      task,
      output,
      arguments_.equal_parts(task.name, input, output.numel()),
      options.reduceOp);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::COALESCED,
      "reduce_scatter_tensor_coalesced",
      options.timeout,
      options.asyncOp);
  arguments_.check_pairs(task.name, inputs, outputs);
  std::vector<std::unique_ptr<Collective>> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(reduce_scatter(
        task,
        outputs[i],
        arguments_.equal_parts(task.name, inputs[i], outputs[i].numel()),
        options.reduceOp));
  }
  task.collective = std::make_unique<Chain>(std::move(parts));
  return launch(std::move(task));
}

} // namespace ddp::backends::shm
