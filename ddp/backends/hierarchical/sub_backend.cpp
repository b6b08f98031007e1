#include <ddp/backends/hierarchical/sub_backend.h>

#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/common/reduction.h>
#include <ddp/internal/check.h>
#include <ddp/support/error_text.h>

#include <ATen/ATen.h>

#include <iterator>

namespace ddp::backends::hierarchical {
namespace {

using Tensors = std::vector<at::Tensor>;

// The interval at which waits check whether they were aborted.
constexpr std::chrono::milliseconds kSlice(250);

c10d::ReduceOp sum_if_mean(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::AVG ? c10d::ReduceOp(c10d::ReduceOp::SUM)
                                       : op;
}

/// The argument of gather and scatter: empty on ranks other than the root.
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

bool is_of_gloo(at::ScalarType dtype) {
  constexpr at::ScalarType kOfGloo[] = {
      at::kFloat,
      at::kDouble,
      at::kHalf,
      at::kBFloat16,
      at::kByte,
      at::kChar,
      at::kInt,
      at::kLong};
  return std::find(std::begin(kOfGloo), std::end(kOfGloo), dtype) !=
      std::end(kOfGloo);
}

SubBackend::SubBackend(
    c10::intrusive_ptr<c10d::Backend> part,
    const char* where,
    const std::atomic<bool>& broken_off)
    : backend_(std::move(part)), where_(where), broken_off_(broken_off) {}

SubBackend::WorkPtr SubBackend::start(const Launch& launch) const {
  try {
    return backend_ ? launch(*backend_) : nullptr;
  } catch (const std::exception& error) {
    fail(error);
  }
}

void SubBackend::finish(const WorkPtr& work) const {
  try {
    if (work) {
      await(*work);
    }
  } catch (const std::exception& error) {
    fail(error);
  }
}

void SubBackend::await(c10d::Work& work) const {
  while (!ends_within(kSlice, work)) {
    DDP_CHECK(
        !broken_off_,
        "it was aborted because the group was aborted or destroyed");
  }
}

bool SubBackend::can_reduce(const at::Tensor& tensor) const {
  return !backend_ || backend_->getBackendName() != "gloo" ||
      is_of_gloo(tensor.scalar_type());
}

void SubBackend::reduce_here(
    const at::Tensor& tensor,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  const auto own = tensor.view(-1);
  const auto rows = own.new_empty({backend_->getSize(), own.numel()});
  finish(all_gather(own.view(at::kByte), rows.view(at::kByte), timeout));
  std::vector<const char*> sources;
  for (const auto& row : rows.unbind()) {
    sources.push_back(static_cast<const char*>(row.const_data_ptr()));
  }
  const shm::Reduction reduce(tensor.scalar_type(), op);
  reduce(sources, {static_cast<char*>(own.mutable_data_ptr())}, own.numel());
}

void SubBackend::fail(const std::exception& error) const {
  DDP_THROW(
      DistBackendError,
      "{} ({}): {}",
      where_,
      backend_->getBackendName(),
      detail::error_text(error));
}

SubBackend::WorkPtr SubBackend::reduce(
    at::Tensor tensor,
    const c10d::ReduceOp& op,
    int root,
    Timeout timeout) const {
  if (!can_reduce(tensor)) {
    reduce_here(tensor, op, timeout);
    return nullptr;
  }
  return start([&](c10d::Backend& part) {
    Tensors tensors{std::move(tensor)};
    return part.reduce(
        tensors, {sum_if_mean(op), root, /*rootTensor=*/0, timeout});
  });
}

SubBackend::WorkPtr SubBackend::all_reduce(
    at::Tensor tensor,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  if (!can_reduce(tensor)) {
    reduce_here(tensor, op, timeout);
    return nullptr;
  }
  return start([&](c10d::Backend& part) {
    Tensors tensors{std::move(tensor)};
    return part.allreduce(tensors, {sum_if_mean(op), timeout});
  });
}

SubBackend::WorkPtr SubBackend::broadcast(
    const at::Tensor& tensor,
    int root,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors tensors{tensor.view(at::kByte)};
    return part.broadcast(tensors, {root, /*rootTensor=*/0, timeout});
  });
}

SubBackend::WorkPtr SubBackend::gather(
    at::Tensor row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors inputs{std::move(row)};
    auto outputs = list_at_root(part, rows);
    return part.gather(outputs, inputs, {/*rootRank=*/0, timeout});
  });
}

SubBackend::WorkPtr SubBackend::scatter(
    const at::Tensor& row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    Tensors outputs{row.view(at::kByte)};
    auto inputs = list_at_root(part, rows.view(at::kByte));
    return part.scatter(outputs, inputs, {/*rootRank=*/0, timeout});
  });
}

SubBackend::WorkPtr SubBackend::all_gather(
    const at::Tensor& row,
    const at::Tensor& rows,
    Timeout timeout) const {
  return start([&](c10d::Backend& part) {
    auto output = rows.view(-1);
    auto input = row.view(-1);
    return part._allgather_base(output, input, {timeout});
  });
}

SubBackend::WorkPtr SubBackend::reduce_scatter(
    const at::Tensor& row,
    const at::Tensor& rows,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  if (!can_reduce(row)) {
    reduce_here(rows, op, timeout);
    row.view(-1).copy_(
        rows.view({backend_->getSize(), -1})[backend_->getRank()]);
    return nullptr;
  }
  return start([&](c10d::Backend& part) {
    auto output = row.view(-1);
    auto input = rows.view(-1);
    return part._reduce_scatter_base(output, input, {sum_if_mean(op), timeout});
  });
}

} // namespace ddp::backends::hierarchical
