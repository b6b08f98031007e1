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

Backend::WorkPtr Backend::all_reduce(
    const Call& call,
    const Tensors& tensors,
    const c10d::ReduceOp& op) {
  auto task = this->task(call);
  if (call.type == c10d::OpType::ALLREDUCE) {
    task.collective = tensors[0].is_sparse() ? sparse_sum(task, tensors[0], op)
                                             : dense_sum(task, tensors[0], op);
    return launch(std::move(task));
  }
  std::vector<std::unique_ptr<Collective>> parts;
  for (const auto& tensor : tensors) {
    parts.push_back(dense_sum(task, tensor, op));
  }
  task.collective = in_turn(std::move(parts));
  return launch(std::move(task));
}

std::unique_ptr<Collective> Backend::dense_sum(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) const {
  output(task, tensor);
  if (op.op_ == c10d::ReduceOp::AVG) {
    and_then(task, [tensor, size = size_] { at::Tensor(tensor).div_(size); });
  }
  return std::make_unique<AllReduce>(team(), tensor, op);
}

std::unique_ptr<Collective> Backend::sparse_sum(
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
  auto task = this->task({c10d::OpType::REDUCE, "reduce", options});
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
  task.collective =
      collective(task, {to_ranks, from_ranks, tensor.scalar_type(), root});
  return launch(std::move(task));
}

std::unique_ptr<Collective> Backend::reduced_part(
    Task& task,
    const Part& part,
    const c10d::ReduceOp& op) const {
  for (const auto& tensor : part.inputs) {
    input(task, tensor);
  }
  output(task, part.output);
  const auto dtype = part.output.scalar_type();
  const Reduction possible(dtype, op);
  const auto rows = rows_like(part.output, size_);
  and_then(task, [rows, output = part.output, op] {
    reduce_rows(rows, output, op);
  });
  return collective(task, {part.inputs, rows, dtype});
}

Backend::WorkPtr Backend::reduce_parts(
    const Call& call,
    const std::vector<Part>& parts,
    const c10d::ReduceOp& op) {
  auto task = this->task(call);
  std::vector<std::unique_ptr<Collective>> collectives;
  for (const auto& part : parts) {
    collectives.push_back(reduced_part(task, part, op));
  }
  task.collective = in_turn(std::move(collectives));
  return launch(std::move(task));
}

} // namespace ddp::backends::shm
