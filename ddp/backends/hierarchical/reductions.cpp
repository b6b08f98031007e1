// Collectives that reduce.

#include <ddp/backends/common/reduction.h>
#include <ddp/backends/hierarchical/backend.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace ddp::backends::hierarchical {
namespace {

/// While one chunk is reduced between hosts, the next chunk is reduced within
/// hosts. No other work overlaps the first and the last chunk, so both are a
/// small part of the tensor.
int64_t chunk_bytes(const at::Tensor& tensor) {
  constexpr int64_t kLeast = int64_t(256) << 10;
  constexpr int64_t kMost = int64_t(2) << 20;
  constexpr int64_t kChunks = 8;
  return std::clamp(
      static_cast<int64_t>(tensor.nbytes()) / kChunks, kLeast, kMost);
}

/// Throws `c10::ValueError` on all ranks if the dtype has no such operation: on
/// a rank that is alone on its host, no sub-backend may check this.
void check_reduction(at::ScalarType dtype, const c10d::ReduceOp& op) {
  static_cast<void>(shm::Reduction(dtype, op));
}

void divide_if_mean(
    const at::Tensor& tensor,
    const c10d::ReduceOp& op,
    int size) {
  if (op.op_ == c10d::ReduceOp::AVG) {
    divide_sum(tensor, size);
  }
}

} // namespace

Backend::WorkPtr Backend::allreduce(
    Tensors& tensors,
    const c10d::AllreduceOptions& options) {
  const char* name = "all_reduce";
  const auto& tensor = arguments_.only(name, tensors);
  if (tensor.is_sparse()) {
    return ForwardingBackend::allreduce(tensors, options);
  }
  const auto memory = operand(name, tensor, options.reduceOp);
  return push(c10d::OpType::ALLREDUCE, name, tensors, [=, steps = steps_] {
    steps->all_reduce(memory, options.reduceOp, options.timeout);
  });
}

Backend::WorkPtr Backend::allreduce_coalesced(
    Tensors& tensors,
    const c10d::AllreduceCoalescedOptions& options) {
  const char* name = "all_reduce_coalesced";
  Tensors memories;
  for (const auto& tensor : tensors) {
    memories.push_back(operand(name, tensor, options.reduceOp));
  }
  return push(
      c10d::OpType::ALLREDUCE_COALESCED, name, tensors, [=, steps = steps_] {
        for (const auto& memory : memories) {
          steps->all_reduce(memory, options.reduceOp, options.timeout);
        }
      });
}

at::Tensor Backend::operand(
    const char* name,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op) const {
  arguments_.check_dense(name, tensor);
  check_reduction(tensor.scalar_type(), op);
  return elements(name, tensor);
}

void Steps::all_reduce(
    const at::Tensor& tensor,
    const c10d::ReduceOp& op,
    Timeout timeout) const {
  if (tensor.numel() == 0) {
    return;
  }
  const auto chunks = tensor.split(chunk_bytes(tensor) / tensor.itemsize());
  const auto count = chunks.size();
  std::vector<SubBackend::WorkPtr> reduced(count);
  std::vector<SubBackend::WorkPtr> summed(count);
  std::vector<SubBackend::WorkPtr> spread(count);
  for (size_t step = 0; step < count + 2; ++step) {
    if (step < count) {
      // All ranks of the host: over shm, each reduces a part in place.
      reduced[step] = intra_node.all_reduce(chunks[step], op, timeout);
    }
    if (step >= 1 && step - 1 < count) {
      intra_node.finish(reduced[step - 1]);
      summed[step - 1] = inter_node.all_reduce(chunks[step - 1], op, timeout);
    }
    if (step >= 2) {
      inter_node.finish(summed[step - 2]);
      if (place_ == 0) {
        divide_if_mean(chunks[step - 2], op, size_);
      }
      spread[step - 2] = intra_node.broadcast(chunks[step - 2], 0, timeout);
    }
  }
  for (const auto& work : spread) {
    intra_node.finish(work);
  }
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const char* name = "barrier";
  check_usable(name);
  // Waits for earlier calls, as gloo's barrier does.
  const auto flat = sent_flat_.exchange(false)
      ? steps_->flat.start(
            [&](c10d::Backend& part) { return part.barrier(options); })
      : nullptr;
  return push(c10d::OpType::BARRIER, name, {}, [=, steps = steps_] {
    steps->flat.finish(flat);
    steps->all_reduce(at::zeros({1}), c10d::ReduceOp::SUM, options.timeout);
  });
}

Backend::WorkPtr Backend::reduce(
    Tensors& tensors,
    const c10d::ReduceOptions& options) {
  const char* name = "reduce";
  arguments_.check_root(name, options.rootRank);
  const auto tensor =
      operand(name, arguments_.only(name, tensors), options.reduceOp);
  return push(c10d::OpType::REDUCE, name, tensors, [=, steps = steps_] {
    if (tensor.numel() > 0) {
      steps->reduce_to_root(tensor, options);
    }
  });
}

void Steps::reduce_to_root(
    const at::Tensor& tensor,
    const c10d::ReduceOptions& options) const {
  const auto root = static_cast<int>(options.rootRank);
  const int host = placement_.host[root];
  const auto& op = options.reduceOp;
  const auto sum = tensor.clone(); // only the root's tensor may change
  // A reduce would need shared memory for the tensors of all ranks.
  intra_node.finish(intra_node.all_reduce(sum, op, options.timeout));
  inter_node.finish(inter_node.reduce(sum, op, host, options.timeout));
  if (host_ == host && placement_.place[root] > 0) {
    intra_node.finish(intra_node.broadcast(sum, 0, options.timeout));
  }
  if (rank_ == root) {
    divide_if_mean(sum, op, size_);
    tensor.copy_(sum);
  }
}

Backend::WorkPtr Backend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  const char* name = "reduce_scatter";
  return reduce_scatter(
      c10d::OpType::REDUCE_SCATTER,
      name,
      arguments_.only(name, outputs),
      arguments_.only_list(name, inputs),
      options);
}

Backend::WorkPtr Backend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  const char* name = "reduce_scatter_tensor";
  return reduce_scatter(
      c10d::OpType::_REDUCE_SCATTER_BASE,
      name,
      output,
      arguments_.equal_parts(name, input, output.numel()),
      options);
}

Backend::WorkPtr Backend::reduce_scatter(
    c10d::OpType type,
    const char* name,
    const at::Tensor& output,
    const Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  const auto target = row(name, output, inputs[rank_].numel());
  arguments_.check_same_dtype(name, output, inputs);
  check_reduction(output.scalar_type(), options.reduceOp);
  Tensors sources;
  for (const auto& input : inputs) {
    sources.push_back(row(name, input, input.numel()));
  }
  return push(type, name, {output}, [=, steps = steps_] {
    if (longest(sources) > 0) {
      steps->scatter_sums(target, sources, options);
    }
  });
}

void Steps::scatter_sums(
    const at::Tensor& output,
    const Tensors& inputs,
    const c10d::ReduceScatterOptions& options) const {
  const auto& op = options.reduceOp;
  const auto length = longest(inputs);
  const auto sums =
      output.new_zeros({placement_.hosts(), placement_.most, length});
  for (int rank = 0; rank < size_; ++rank) {
    row_of(sums, rank, inputs[rank].numel()).copy_(inputs[rank]);
  }
  intra_node.finish(
      intra_node.all_reduce(sums, op, options.timeout)); // as above
  const auto block = sums[host_].clone();
  inter_node.finish(
      inter_node.reduce_scatter(block, sums, op, options.timeout));
  const auto own = intra_node.backend() ? output.new_empty({length}) : block[0];
  intra_node.finish(intra_node.scatter(own, block, options.timeout));
  output.copy_(own.narrow(0, 0, output.numel()));
  divide_if_mean(output, op, size_);
}

} // namespace ddp::backends::hierarchical
