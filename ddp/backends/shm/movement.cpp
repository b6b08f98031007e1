// Collectives that move data.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/chain.h>

namespace ddp::backends::shm {

std::unique_ptr<Collective> Backend::exchange(
    const Task& task,
    const at::Tensor& like,
    Tensors to_ranks,
    Tensors from_ranks,
    int64_t root) const {
  return std::make_unique<Exchange>(
      team(),
      ExchangeKind{task.type, like.scalar_type(), static_cast<int>(root)},
      std::move(to_ranks),
      std::move(from_ranks));
}

void Backend::note_exchange(
    Task& task,
    const Tensors& inputs,
    const Tensors& outputs) const {
  for (const auto& tensor : inputs) {
    arguments_.check_contiguous(task.name, tensor);
    arguments_.check_same_dtype(task.name, tensor, outputs);
    input(task, tensor);
  }
  for (const auto& tensor : outputs) {
    arguments_.check_contiguous(task.name, tensor);
    output(task, tensor);
  }
}

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  auto task = this->task(
      c10d::OpType::BROADCAST, "broadcast", options.timeout, options.asyncOp);
  const auto root = options.rootRank;
  arguments_.check_root(task.name, root);
  const auto& tensor = arguments_.only(task.name, tensors);
  output(task, tensor);
  const bool is_root = rank_ == root;
  Tensors from_ranks(size_);
  from_ranks[root] = is_root ? at::Tensor() : tensor;
  task.collective = exchange(
      task, tensor, {is_root ? tensor : at::Tensor()}, from_ranks, root);
  return launch(std::move(task));
}

std::unique_ptr<Collective> Backend::all_gather(
    Task& task,
    const Tensors& outputs,
    const at::Tensor& input) const {
  note_exchange(task, {input}, outputs);
  TORCH_CHECK_VALUE(
      outputs[rank_].numel() == input.numel(),
      task.name,
      " over shm: rank ",
      rank_,
      " has ",
      input.numel(),
      " elements, its own output ",
      outputs[rank_].numel());
  return exchange(task, input, {input}, outputs);
}

Backend::WorkPtr Backend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLGATHER, "all_gather", options.timeout, options.asyncOp);
  task.collective = all_gather(
      task,
      arguments_.only_list(task.name, outputs),
      arguments_.only(task.name, inputs));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::_ALLGATHER_BASE,
      "all_gather_into_tensor",
      options.timeout,
      options.asyncOp);
  task.collective = all_gather(
      task, arguments_.equal_parts(task.name, output, input.numel()), input);
  task.outputs = {output};
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather_coalesced(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLGATHER_COALESCED,
      "all_gather_coalesced",
      options.timeout,
      options.asyncOp);
  arguments_.check_list(task.name, outputs.size());
  std::vector<std::unique_ptr<Collective>> parts;
  for (const auto& list : outputs) {
    arguments_.check_pairs(task.name, inputs, list);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_ranks;
    for (const auto& list : outputs) {
      from_ranks.push_back(list[i]);
    }
    parts.push_back(all_gather(task, from_ranks, inputs[i]));
  }
  task.collective = std::make_unique<Chain>(std::move(parts));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::COALESCED,
      "all_gather_into_tensor_coalesced",
      options.timeout,
      options.asyncOp);
  arguments_.check_pairs(task.name, inputs, outputs);
  std::vector<std::unique_ptr<Collective>> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(all_gather(
        task,
        arguments_.equal_parts(task.name, outputs[i], inputs[i].numel()),
        inputs[i]));
  }
  task.outputs = outputs;
  task.collective = std::make_unique<Chain>(std::move(parts));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  auto task = this->task(
      c10d::OpType::GATHER, "gather", options.timeout, options.asyncOp);
  const auto root = options.rootRank;
  arguments_.check_root(task.name, root);
  const auto& own = arguments_.only(task.name, inputs);
  Tensors to_ranks(size_);
  to_ranks[root] = own;
  Tensors from_ranks(size_);
  if (rank_ == root) {
    from_ranks = arguments_.only_list(task.name, outputs);
    note_exchange(task, {own}, from_ranks);
  } else {
    arguments_.check_no_lists(task.name, outputs);
    note_exchange(task, {own}, {});
  }
  task.collective = exchange(task, own, to_ranks, from_ranks, root);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  auto task = this->task(
      c10d::OpType::SCATTER, "scatter", options.timeout, options.asyncOp);
  const auto root = options.rootRank;
  arguments_.check_root(task.name, root);
  const auto& own = arguments_.only(task.name, outputs);
  Tensors to_ranks(size_);
  Tensors from_ranks(size_);
  from_ranks[root] = own;
  if (rank_ == root) {
    to_ranks = arguments_.only_list(task.name, inputs);
    note_exchange(task, to_ranks, {own});
  } else {
    arguments_.check_no_lists(task.name, inputs);
    note_exchange(task, {}, {own});
  }
  task.collective = exchange(task, own, to_ranks, from_ranks, root);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLTOALL_BASE,
      "all_to_all_single",
      options.timeout,
      options.asyncOp);
  note_exchange(task, {input}, {output});
  task.collective = exchange(
      task,
      input,
      arguments_.parts(task.name, input, input_sizes),
      arguments_.parts(task.name, output, output_sizes));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLTOALL, "all_to_all", options.timeout, options.asyncOp);
  arguments_.check_list(task.name, inputs.size());
  arguments_.check_list(task.name, outputs.size());
  note_exchange(task, inputs, outputs);
  task.collective = exchange(task, inputs.front(), inputs, outputs);
  return launch(std::move(task));
}

} // namespace ddp::backends::shm
