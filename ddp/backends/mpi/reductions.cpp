// Collectives that reduce.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/common/reduction.h>
#include <ddp/backends/mpi/operators.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
namespace {

/// Calls `reduce(begin, count)` for pieces of `tensor` that MPI can count:
/// `begin` in bytes, `count` in values of MPI's type.
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

/// Reduces `source` into the memory of `target` on rank `root`.
void reduce_to(
    int root,
    const at::Tensor& source,
    const at::Tensor& target,
    const Operator& op,
    const Channel& channel,
    Requests& requests) {
  in_pieces(source, op, requests.largest(), [&](int64_t begin, int count) {
    const auto* from = data_of(source) + begin;
    auto* to = root == channel.rank ? data_of(target) + begin : nullptr;
    check_mpi(
        MPI_Ireduce(
            from == to ? MPI_IN_PLACE : from,
            to,
            count,
            op.type,
            op.op,
            root,
            channel.comm->get(),
            requests.next()),
        "MPI_Ireduce");
  });
}

void divide_if_mean(
    Task& task,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op,
    int size) {
  if (op.op_ == c10d::ReduceOp::AVG) {
    task.finish.push_back([=] { divide_sum(tensor, size); });
  }
}

} // namespace

Backend::WorkPtr Backend::all_reduce(
    const Call& call,
    const at::Tensor& tensor,
    const c10d::ReduceOp& reduce_op) {
  auto task = this->task(call);
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
  return launch(std::move(task));
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  auto task = this->task({c10d::OpType::REDUCE, "reduce", options});
  arguments_.check_root(task.name, options.rootRank);
  const auto& tensor = arguments_.only(task.name, tensors);
  const bool is_root = rank_ == options.rootRank;
  const auto memory = is_root ? output(task, tensor) : input(task, tensor);
  const auto op = operator_for(tensor.scalar_type(), options.reduceOp);
  const auto root = static_cast<int>(options.rootRank);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    reduce_to(root, memory, memory, op, *channel, requests);
  });
  if (is_root) {
    divide_if_mean(task, memory, options.reduceOp, size_);
  }
  return launch(std::move(task));
}

Backend::WorkPtr Backend::reduce_parts(
    const Call& call,
    const Part& part,
    const c10d::ReduceOp& reduce_op) {
  auto task = this->task(call);
  const auto op = operator_for(part.output.scalar_type(), reduce_op);
  const auto target = output(task, part.output);
  for (int root = 0; root < size_; ++root) {
    const auto source = input(task, part.inputs[root]);
    task.steps.push_back([=, channel = channel_](Requests& requests) {
      reduce_to(root, source, target, op, *channel, requests);
    });
  }
  divide_if_mean(task, target, reduce_op, size_);
  return launch(std::move(task));
}

} // namespace ddp::backends::mpi
