#include <ddp/backends/hierarchical/level.h>

#include <ddp/detail/error_text.h>

#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::hierarchical {
namespace {

using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp sum_if_mean(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::AVG ? c10d::ReduceOp(c10d::ReduceOp::SUM)
                                       : op;
}

/// The list that gathers and scatters take: empty on other ranks than the root.
std::vector<Tensors> list_at_root(
    const c10d::Backend& part,
    const at::Tensor& rows) {
  std::vector<Tensors> lists;
  if (part.getRank() == 0) {
    lists.push_back(rows.narrow(0, 0, part.getSize()).unbind());
  }
  return lists;
}

} // namespace

Level::Level(c10::intrusive_ptr<c10d::Backend> part, const char* where)
    : part_(std::move(part)), where_(where) {}

Level::WorkPtr Level::start(const Launch& launch) const {
  try {
    return part_ ? launch(*part_) : nullptr;
  } catch (const std::exception& error) {
    fail(error);
  }
}

void Level::finish(const WorkPtr& work) const {
  try {
    if (work) {
      work->wait();
    }
  } catch (const std::exception& error) {
    fail(error);
  }
}

void Level::fail(const std::exception& error) const {
  C10_THROW_ERROR(
      DistBackendError,
      c10::str(
          where_,
          " (",
          part_->getBackendName(),
          "): ",
          detail::error_text(error)));
}

Level::WorkPtr Level::reduce(
    at::Tensor tensor,
    const c10d::ReduceOp& op,
    int root,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors tensors{std::move(tensor)};
    c10d::ReduceOptions options;
    options.reduceOp = sum_if_mean(op);
    options.rootRank = root;
    options.timeout = timeout;
    return part.reduce(tensors, options);
  });
}

Level::WorkPtr Level::all_reduce(
    at::Tensor tensor,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors tensors{std::move(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = sum_if_mean(op);
    options.timeout = timeout;
    return part.allreduce(tensors, options);
  });
}

Level::WorkPtr Level::broadcast(at::Tensor tensor, int root, Timeout timeout)
    const {
  return start([&](c10d::Backend& part) {
    Tensors tensors{std::move(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout;
    return part.broadcast(tensors, options);
  });
}

Level::WorkPtr Level::gather(
    at::Tensor row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors inputs{std::move(row)};
    auto outputs = list_at_root(part, rows);
    c10d::GatherOptions options;
    options.timeout = timeout;
    return part.gather(outputs, inputs, options);
  });
}

Level::WorkPtr Level::scatter(
    at::Tensor row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors outputs{std::move(row)};
    auto inputs = list_at_root(part, rows);
    c10d::ScatterOptions options;
    options.timeout = timeout;
    return part.scatter(outputs, inputs, options);
  });
}

Level::WorkPtr Level::all_gather(
    const at::Tensor& row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    auto output = rows.view(-1);
    auto input = row.view(-1);
    c10d::AllgatherOptions options;
    options.timeout = timeout;
    return part._allgather_base(output, input, options);
  });
}

Level::WorkPtr Level::reduce_scatter(
    const at::Tensor& row,
    const at::Tensor& rows,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    auto output = row.view(-1);
    auto input = rows.view(-1);
    c10d::ReduceScatterOptions options;
    options.reduceOp = sum_if_mean(op);
    options.timeout = timeout;
    return part._reduce_scatter_base(output, input, options);
  });
}

} // namespace ddp::backends::hierarchical
