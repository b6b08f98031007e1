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

Backend::WorkPtr Backend::all_gather_into(
    const Call& call,
    const Tensors& outputs,
    const Tensors& inputs) {
  auto task = this->task(call);
  arguments_.check_pairs(task.name, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    add_all_gather(task, outputs[i], inputs[i]);
  }
  return launch(std::move(task));
}

void Backend::add_all_gather(
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
      mpi::exchange(*channel, requests, to_ranks, from_ranks);
    });
  }
  if (plan.next) {
    task.second_step = [next = std::move(plan.next),
                        channel = channel_](Requests& requests) {
      for (const auto& each : next()) {
        mpi::exchange(*channel, requests, each.to_ranks, each.from_ranks);
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
