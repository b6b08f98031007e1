// Collectives that move data.

#include <ddp/backends/mpi/backend.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
namespace {

/// Starts the messages to and from each rank. A single tensor to send goes to
/// all ranks; undefined tensors are skipped. Empty ones are sent, so that a
/// rank whose tensors do not fit gets an error, not the next exchange's
/// message.
void exchange_messages(
    const Channel& channel,
    Requests& requests,
    const std::vector<at::Tensor>& to_ranks,
    const std::vector<at::Tensor>& from_ranks) {
  const int size = channel.size;
  const int rank = channel.rank;
  const auto to = [&](int peer) -> const at::Tensor& {
    return to_ranks[to_ranks.size() == 1 ? 0 : peer];
  };
  const bool own_is_there =
      bytes_of(to(rank)).data == bytes_of(from_ranks[rank]).data;
  // Ranks begin with different peers, so that not all write to one rank at
  // once.
  for (int i = own_is_there ? 1 : 0; i < size; ++i) {
    const int peer = (rank + size - i) % size;
    if (from_ranks[peer].defined()) {
      requests.receive(
          bytes_of(from_ranks[peer]), peer, kExchangeTag, *channel.comm);
    }
  }
  for (int i = own_is_there ? 1 : 0; i < size; ++i) {
    const int peer = (rank + i) % size;
    if (to(peer).defined()) {
      requests.send(bytes_of(to(peer)), peer, kExchangeTag, *channel.comm);
    }
  }
}

} // namespace

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

Backend::WorkPtr Backend::all_gather_into(
    const Call& call,
    const at::Tensor& output,
    const at::Tensor& input) {
  auto task = this->task(call);
  arguments_.check_same_dtype(task.name, input, {output});
  arguments_.check_contiguous(task.name, input);
  arguments_.equal_parts(task.name, output, input.numel());
  const auto source = this->input(task, input);
  const auto target = this->output(task, output);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto from = bytes_of(source);
    const auto to = bytes_of(target);
    // MPI requires MPI_IN_PLACE if the input is this rank's part of the output.
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
  return launch(std::move(task));
}

Backend::WorkPtr Backend::exchange(const Call& call, Plan plan) {
  auto task = this->task(call);
  task.staging.messages();
  for (const auto& each : plan.exchanges) {
    Tensors to_ranks;
    for (const auto& tensor : each.to_ranks) {
      to_ranks.push_back(tensor.defined() ? input(task, tensor) : tensor);
    }
    Tensors from_ranks;
    for (const auto& tensor : each.from_ranks) {
      from_ranks.push_back(tensor.defined() ? output(task, tensor) : tensor);
    }
    task.steps.push_back([=, channel = channel_](Requests& requests) {
      exchange_messages(*channel, requests, to_ranks, from_ranks);
    });
  }
  if (plan.next) {
    task.second_step = [next = std::move(plan.next),
                        channel = channel_](Requests& requests) {
      for (const auto& each : next()) {
        exchange_messages(*channel, requests, each.to_ranks, each.from_ranks);
      }
    };
  }
  if (plan.finish) {
    task.finish.push_back(std::move(plan.finish));
  }
  task.outputs = std::move(plan.outputs);
  return launch(std::move(task));
}

} // namespace ddp::backends::mpi
