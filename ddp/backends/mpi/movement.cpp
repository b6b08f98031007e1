// Collectives that move data.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/exchange.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  auto task = this->task(c10d::OpType::BROADCAST, "broadcast", options.timeout);
  arguments_.check_root(task.name, options.rootRank);
  const auto memory = output(task, arguments_.only(task.name, tensors));
  const auto root = static_cast<int>(options.rootRank);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto bytes = bytes_of(memory);
    const auto [count, type] = requests.extent(bytes.size);
    check_mpi(
        MPI_Ibcast(
            bytes.data,
            count,
            type,
            root,
            channel->comm->get(),
            requests.next()),
        "MPI_Ibcast");
  });
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task =
      this->task(c10d::OpType::ALLGATHER, "all_gather", options.timeout);
  all_gather(
      task,
      arguments_.only_list(task.name, outputs),
      arguments_.only(task.name, inputs));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather_coalesced(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLGATHER_COALESCED,
      "all_gather_coalesced",
      options.timeout);
  arguments_.check_list(task.name, outputs.size());
  for (const auto& list : outputs) {
    arguments_.check_pairs(task.name, inputs, list);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_ranks;
    for (const auto& list : outputs) {
      from_ranks.push_back(list[i]);
    }
    all_gather(task, from_ranks, inputs[i]);
  }
  return launch(std::move(task));
}

void Backend::all_gather(
    Task& task,
    const Tensors& outputs,
    const at::Tensor& tensor) const {
  task.staging.messages();
  arguments_.check_same_dtype(task.name, tensor, outputs);
  TORCH_CHECK_VALUE(
      outputs[rank_].numel() == tensor.numel(),
      task.name,
      " over mpi: rank ",
      rank_,
      " has ",
      tensor.numel(),
      " elements, its own output ",
      outputs[rank_].numel());
  const Tensors to_ranks(size_, flat_input(task, tensor));
  Tensors from_ranks;
  for (const auto& output : outputs) {
    from_ranks.push_back(flat_output(task, output));
  }
  exchange(task, to_ranks, from_ranks);
}

Backend::WorkPtr Backend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options.timeout);
  all_gather_into(task, output, input);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      c10d::OpType::COALESCED,
      "all_gather_into_tensor_coalesced",
      options.timeout);
  arguments_.check_pairs(task.name, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    all_gather_into(task, outputs[i], inputs[i]);
  }
  return launch(std::move(task));
}

void Backend::all_gather_into(
    Task& task,
    const at::Tensor& output,
    const at::Tensor& input) const {
  arguments_.check_same_dtype(task.name, input, {output});
  TORCH_CHECK_VALUE(
      output.numel() == input.numel() * size_,
      task.name,
      " over mpi: the output has ",
      output.numel(),
      " elements, not those of ",
      size_,
      " inputs of ",
      input.numel());
  const auto source = flat_input(task, input);
  const auto target = flat_output(task, output);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto from = bytes_of(source);
    const auto to = bytes_of(target);
    // MPI refuses an input that is the output's own part under that name.
    const bool in_place =
        from.data == static_cast<char*>(to.data) + from.size * channel->rank;
    const auto [count, type] = requests.extent(from.size);
    check_mpi(
        MPI_Iallgather(
            in_place ? MPI_IN_PLACE : from.data,
            count,
            type,
            to.data,
            count,
            type,
            channel->comm->get(),
            requests.next()),
        "MPI_Iallgather");
  });
}

Backend::WorkPtr Backend::gather(
    TensorLists& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  auto task = this->task(c10d::OpType::GATHER, "gather", options.timeout);
  return exchange_with_root(std::move(task), options.rootRank, inputs, outputs);
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  auto task = this->task(c10d::OpType::SCATTER, "scatter", options.timeout);
  return exchange_with_root(std::move(task), options.rootRank, outputs, inputs);
}

Backend::WorkPtr Backend::exchange_with_root(
    Task task,
    int64_t root,
    const Tensors& own,
    const TensorLists& lists) {
  task.staging.messages();
  arguments_.check_root(task.name, root);
  const bool gathers = task.type == c10d::OpType::GATHER;
  const auto& tensor = arguments_.only(task.name, own);
  Tensors with_root(size_);
  Tensors with_ranks(size_);
  with_root[root] =
      gathers ? flat_input(task, tensor) : flat_output(task, tensor);
  if (rank_ == root) {
    const auto& list = arguments_.only_list(task.name, lists);
    arguments_.check_same_dtype(task.name, tensor, list);
    for (int rank = 0; rank < size_; ++rank) {
      with_ranks[rank] = gathers ? flat_output(task, list[rank])
                                 : flat_input(task, list[rank]);
    }
  } else {
    arguments_.check_no_lists(task.name, lists);
  }
  gathers ? exchange(task, with_root, with_ranks)
          : exchange(task, with_ranks, with_root);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  auto task = this->task(
      c10d::OpType::ALLTOALL_BASE, "all_to_all_single", options.timeout);
  task.staging.messages();
  arguments_.check_same_dtype(task.name, input, {output});
  exchange(
      task,
      arguments_.parts(task.name, flat_input(task, input), input_sizes),
      arguments_.parts(task.name, flat_output(task, output), output_sizes));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  auto task = this->task(c10d::OpType::ALLTOALL, "all_to_all", options.timeout);
  task.staging.messages();
  arguments_.check_list(task.name, inputs.size());
  arguments_.check_list(task.name, outputs.size());
  arguments_.check_same_dtype(task.name, inputs.front(), outputs);
  Tensors to_ranks;
  Tensors from_ranks;
  for (int rank = 0; rank < size_; ++rank) {
    to_ranks.push_back(flat_input(task, inputs[rank]));
    from_ranks.push_back(flat_output(task, outputs[rank]));
  }
  exchange(task, to_ranks, from_ranks);
  return launch(std::move(task));
}

void Backend::exchange(Task& task, Tensors to_ranks, Tensors from_ranks) const {
  task.steps.push_back(
      [channel = channel_,
       to_ranks = std::move(to_ranks),
       from_ranks = std::move(from_ranks)](Requests& requests) {
        mpi::exchange(*channel, requests, to_ranks, from_ranks);
      });
}

} // namespace ddp::backends::mpi
