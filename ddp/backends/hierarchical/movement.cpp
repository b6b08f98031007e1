// Collectives that move data as bytes, so the sub-backends need not support the
// dtypes.

#include <ddp/backends/hierarchical/backend.h>

#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>

namespace ddp::backends::hierarchical {

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  const char* name = "broadcast";
  arguments_.check_root(name, options.rootRank);
  const auto& tensor = arguments_.only(name, tensors);
  arguments_.check_dense(name, tensor);
  const auto bytes = elements(name, tensor).view(at::kByte);
  const auto root = static_cast<int>(options.rootRank);
  return push(
      c10d::OpType::BROADCAST,
      name,
      tensors,
      [=, steps = steps_, timeout = options.timeout] {
        if (bytes.numel() > 0) {
          steps->broadcast(bytes, root, timeout);
        }
      });
}

Backend::WorkPtr Backend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  const char* name = "all_gather";
  const auto& list = arguments_.only_list(name, outputs);
  return all_gather(
      c10d::OpType::ALLGATHER,
      name,
      list,
      list,
      arguments_.only(name, inputs),
      options.timeout);
}

Backend::WorkPtr Backend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  const char* name = "all_gather_into_tensor";
  return all_gather(
      c10d::OpType::_ALLGATHER_BASE,
      name,
      {output},
      arguments_.equal_parts(name, output, input.numel()),
      input,
      options.timeout);
}

Backend::WorkPtr Backend::all_gather(
    c10d::OpType type,
    const char* name,
    const Tensors& result,
    const Tensors& outputs,
    const at::Tensor& input,
    Timeout timeout) {
  const auto own = row(name, input, outputs[rank_].numel()).view(at::kByte);
  arguments_.check_same_dtype(name, input, outputs);
  Tensors targets;
  for (const auto& output : outputs) {
    targets.push_back(row(name, output, output.numel()).view(at::kByte));
  }
  return push(type, name, result, [=, steps = steps_] {
    if (longest(targets) > 0) {
      steps->gather_rows(own, targets, timeout);
    }
  });
}

at::Tensor Backend::sendable(const char* name, const at::Tensor& tensor) const {
  if (is_of_gloo(tensor.scalar_type()) || tensor.scalar_type() == at::kBool) {
    return tensor;
  }
  arguments_.check_contiguous(name, tensor);
  arguments_.check_on_cpu(name, tensor);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return detail::as_bytes(tensor);
}

Backend::TensorLists Backend::sendable(
    const char* name,
    const at::Tensor& own,
    const TensorLists& lists) const {
  TensorLists result(lists.size());
  for (size_t i = 0; i < lists.size(); ++i) {
    arguments_.check_same_dtype(name, own, lists[i]);
    for (const auto& tensor : lists[i]) {
      result[i].push_back(sendable(name, tensor));
    }
  }
  return result;
}

Backend::WorkPtr Backend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  const char* name = "gather";
  const auto& own = arguments_.only(name, inputs);
  Tensors input{sendable(name, own)};
  auto lists = sendable(name, own, outputs);
  return ForwardingBackend::gather(lists, input, options);
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  const char* name = "scatter";
  const auto& own = arguments_.only(name, outputs);
  Tensors output{sendable(name, own)};
  auto lists = sendable(name, own, inputs);
  return ForwardingBackend::scatter(output, lists, options);
}

Backend::WorkPtr Backend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  const char* name = "all_to_all_single";
  auto received = sendable(name, output);
  auto sent = sendable(name, input);
  arguments_.check_same_dtype(name, input, output);
  // Bytes of scalars could be split, so the tensors themselves are checked.
  arguments_.parts(name, output, output_sizes);
  arguments_.parts(name, input, input_sizes);
  return ForwardingBackend::alltoall_base(
      received, sent, output_sizes, input_sizes, options);
}

at::Tensor Backend::row(
    const char* name,
    const at::Tensor& tensor,
    int64_t numel) const {
  arguments_.check_contiguous(name, tensor);
  DDP_CHECK_VALUE(
      tensor.numel() == numel,
      "{} over hierarchical: the tensor of rank {} has {} elements, but its "
      "entry in the list has {}",
      name,
      rank_,
      tensor.numel(),
      numel);
  return elements(name, tensor);
}

void Steps::broadcast(const at::Tensor& bytes, int root, Timeout timeout)
    const {
  const int host = placement_.host[root];
  if (host_ == host) {
    intra_node.finish(
        intra_node.broadcast(bytes, placement_.place[root], timeout));
  }
  inter_node.finish(inter_node.broadcast(bytes, host, timeout));
  if (host_ != host) {
    intra_node.finish(intra_node.broadcast(bytes, 0, timeout));
  }
}

void Steps::gather_rows(
    const at::Tensor& row,
    const Tensors& targets,
    Timeout timeout) const {
  const auto length = longest(targets);
  const auto block = row.new_empty({placement_.most, length});
  const auto own =
      row.numel() == length ? row : at::pad(row, {0, length - row.numel()});
  if (!intra_node.backend()) {
    block[0].copy_(own);
  }
  intra_node.finish(intra_node.gather(own, block, timeout));
  const auto rows = placement_.hosts() == 1
      ? block.unsqueeze(0)
      : row.new_empty({placement_.hosts(), placement_.most, length});
  inter_node.finish(inter_node.all_gather(block, rows, timeout));
  intra_node.finish(intra_node.broadcast(rows, 0, timeout));
  for (int rank = 0; rank < size_; ++rank) {
    targets[rank].copy_(row_of(rows, rank, targets[rank].numel()));
  }
}

} // namespace ddp::backends::hierarchical
