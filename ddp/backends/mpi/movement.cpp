// Collectives that move data.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/tags.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace ddp::backends::mpi {
namespace {

void check_same_dtype(
    const Task& task,
    const at::Tensor& tensor,
    const Backend::Tensors& others) {
  for (const auto& other : others) {
    TORCH_CHECK_VALUE(
        other.scalar_type() == tensor.scalar_type(),
        task.name,
        " over mpi takes tensors of one dtype, got ",
        tensor.scalar_type(),
        " and ",
        other.scalar_type());
  }
}

/// `tensor`'s parts of these lengths along its first dimension, or equal ones.
Backend::Tensors parts(
    const at::Tensor& tensor,
    const std::vector<int64_t>& lengths,
    int size) {
  c10d::checkSplitSizes(lengths, tensor, size);
  Backend::Tensors result;
  int64_t begin = 0;
  for (int rank = 0; rank < size; ++rank) {
    const auto length = lengths.empty() ? tensor.size(0) / size : lengths[rank];
    result.push_back(tensor.narrow(0, begin, length));
    begin += length;
  }
  return result;
}

} // namespace

Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  auto task = this->task(c10d::OpType::BROADCAST, "broadcast", options.timeout);
  check_root(task, options.rootRank);
  const auto memory = output(task, only(task, tensors));
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
  all_gather(task, only_list(task, outputs), only(task, inputs));
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
  TORCH_CHECK_VALUE(
      outputs.size() == static_cast<size_t>(size_),
      task.name,
      " over mpi takes one list for each of ",
      size_,
      " ranks, got ",
      outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_ranks;
    for (const auto& list : outputs) {
      TORCH_CHECK_VALUE(
          list.size() == inputs.size(),
          task.name,
          " over mpi: ",
          inputs.size(),
          " inputs, but a list of ",
          list.size(),
          " outputs");
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
  check_same_dtype(task, tensor, outputs);
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
  TORCH_CHECK_VALUE(
      outputs.size() == inputs.size(),
      task.name,
      " over mpi: ",
      inputs.size(),
      " inputs, but ",
      outputs.size(),
      " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    all_gather_into(task, outputs[i], inputs[i]);
  }
  return launch(std::move(task));
}

void Backend::all_gather_into(
    Task& task,
    const at::Tensor& output,
    const at::Tensor& input) const {
  check_same_dtype(task, input, {output});
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
  task.staging.messages();
  check_root(task, options.rootRank);
  const auto& tensor = only(task, inputs);
  Tensors to_ranks(size_);
  Tensors from_ranks(size_);
  to_ranks[options.rootRank] = flat_input(task, tensor);
  if (rank_ == options.rootRank) {
    const auto& list = only_list(task, outputs);
    check_same_dtype(task, tensor, list);
    for (int rank = 0; rank < size_; ++rank) {
      from_ranks[rank] = flat_output(task, list[rank]);
    }
  } else {
    TORCH_CHECK_VALUE(
        outputs.empty(), task.name, " over mpi: outputs on another than root");
  }
  exchange(task, to_ranks, from_ranks);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ScatterOptions& options) {
  auto task = this->task(c10d::OpType::SCATTER, "scatter", options.timeout);
  task.staging.messages();
  check_root(task, options.rootRank);
  const auto& tensor = only(task, outputs);
  Tensors to_ranks(size_);
  Tensors from_ranks(size_);
  from_ranks[options.rootRank] = flat_output(task, tensor);
  if (rank_ == options.rootRank) {
    const auto& list = only_list(task, inputs);
    check_same_dtype(task, tensor, list);
    for (int rank = 0; rank < size_; ++rank) {
      to_ranks[rank] = flat_input(task, list[rank]);
    }
  } else {
    TORCH_CHECK_VALUE(
        inputs.empty(), task.name, " over mpi: inputs on another than root");
  }
  exchange(task, to_ranks, from_ranks);
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
  check_same_dtype(task, input, {output});
  exchange(
      task,
      parts(flat_input(task, input), input_sizes, size_),
      parts(flat_output(task, output), output_sizes, size_));
  return launch(std::move(task));
}

Backend::WorkPtr Backend::alltoall(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllToAllOptions& options) {
  auto task = this->task(c10d::OpType::ALLTOALL, "all_to_all", options.timeout);
  task.staging.messages();
  check_list(task, inputs);
  check_list(task, outputs);
  check_same_dtype(task, inputs.front(), outputs);
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
        const int size = channel->size;
        const int rank = channel->rank;
        const bool own_is_there =
            bytes_of(to_ranks[rank]).data == bytes_of(from_ranks[rank]).data;
        // Each begins at its own place, so that not all write to one rank at
        // once.
        for (int i = own_is_there ? 1 : 0; i < size; ++i) {
          const int peer = (rank + size - i) % size;
          const auto bytes = bytes_of(from_ranks[peer]);
          if (bytes.size > 0) {
            requests.receive(bytes, peer, kExchangeTag, *channel->comm);
          }
        }
        for (int i = own_is_there ? 1 : 0; i < size; ++i) {
          const int peer = (rank + i) % size;
          const auto bytes = bytes_of(to_ranks[peer]);
          if (bytes.size > 0) {
            requests.send(bytes, peer, kExchangeTag, *channel->comm);
          }
        }
      });
}

} // namespace ddp::backends::mpi
