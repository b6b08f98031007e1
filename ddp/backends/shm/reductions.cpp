// Collectives that reduce.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/all_reduce.h>
#include <ddp/backends/shm/collective.h>

#include <ATen/ATen.h>

namespace ddp::backends::shm {
namespace {

/// A row for the data of each rank.
Backend::Tensors rows_like(const at::Tensor& tensor, int size) {
  return at::empty({size, tensor.numel()}, tensor.options()).unbind();
}

/// Reduces the rows into `target`, in rank order.
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
    divide_sum(target, static_cast<int64_t>(rows.size()));
  }
}

} // namespace

Backend::WorkPtr Backend::all_reduce(
    const Call& call,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) {
  auto task = this->task(call);
  add(task, tensor);
  task.outputs = {tensor};
  if (op.op_ == c10d::ReduceOp::AVG) {
    task.finish = [tensor, size = size_] { divide_sum(tensor, size); };
  }
  task.collective = std::make_unique<AllReduce>(context(), tensor, op);
  return engine_->submit(std::move(task));
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  const Call call{c10d::OpType::REDUCE, "reduce", options};
  const auto root = options.rootRank;
  const auto op = options.reduceOp;
  arguments_.check_root(call.name, root);
  const auto tensor = arguments_.only(call.name, tensors);
  arguments_.check_dense(call.name, tensor);
  const Reduction possible(tensor.scalar_type(), op);
  Tensors to_ranks(size_);
  to_ranks[root] = tensor;
  Tensors from_ranks(size_);
  Plan plan;
  if (rank_ == root) {
    from_ranks = rows_like(tensor, size_);
    plan.outputs = tensors;
    plan.finish = [=] { reduce_rows(from_ranks, tensor, op); };
  }
  plan.exchanges = {{to_ranks, from_ranks, tensor.scalar_type(), root}};
  return exchange(call, std::move(plan));
}

Backend::WorkPtr Backend::reduce_parts(
    const Call& call,
    const Part& part,
    const c10d::ReduceOp& op) {
  const auto& [output, inputs] = part;
  const Reduction possible(output.scalar_type(), op);
  const auto rows = rows_like(output, size_);
  Plan plan{{{inputs, rows, output.scalar_type()}}, {output}};
  plan.finish = [rows, target = output, op] { reduce_rows(rows, target, op); };
  return exchange(call, std::move(plan));
}

} // namespace ddp::backends::shm
