// Collectives that move data.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/exchange.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
Backend::WorkPtr Backend::broadcast(
    Tensors& tensors,
    const c10d::BroadcastOptions& options) {
  auto task = this->task({c10d::OpType::BROADCAST, "broadcast", options});
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

Backend::WorkPtr Backend::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      {c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options});
  all_gather_into(task, output, input);
  return launch(std::move(task));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto task = this->task(
      {c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced", options});
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
      arguments_.over(task.name),
      ": the output has ",
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

Backend::WorkPtr Backend::exchange(
    const Call& call,
    std::vector<Exchange> exchanges,
    Tensors outputs) {
  auto task = this->task(call);
  task.staging.messages();
  for (const auto& each : exchanges) {
    Tensors to_ranks(size_);
    if (each.to_ranks.size() == 1) {
      to_ranks.assign(size_, input(task, each.to_ranks[0]));
    }
    Tensors from_ranks(size_);
    for (int rank = 0; rank < size_; ++rank) {
      if (each.to_ranks.size() > 1 && each.to_ranks[rank].defined()) {
        to_ranks[rank] = input(task, each.to_ranks[rank]);
      }
      if (each.from_ranks[rank].defined()) {
        from_ranks[rank] = output(task, each.from_ranks[rank]);
      }
    }
    add_exchange(task, std::move(to_ranks), std::move(from_ranks));
  }
  task.outputs = std::move(outputs);
  return launch(std::move(task));
}

void Backend::add_exchange(Task& task, Tensors to_ranks, Tensors from_ranks)
    const {
  task.steps.push_back(
      [channel = channel_,
       to_ranks = std::move(to_ranks),
       from_ranks = std::move(from_ranks)](Requests& requests) {
        mpi::exchange(*channel, requests, to_ranks, from_ranks);
      });
}

} // namespace ddp::backends::mpi
