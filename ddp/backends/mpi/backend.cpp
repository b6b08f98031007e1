#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/operators.h>
#include <ddp/backends/mpi/tags.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
Backend::Backend(
    std::shared_ptr<Channel> channel,
    std::chrono::milliseconds timeout,
    int64_t largest)
    : CollectiveBackend(
          "mpi",
          channel->rank,
          channel->size,
          timeout,
          kFirstReservedTag),
      channel_(std::move(channel)),
      largest_(largest) {
  const auto guard = Engine::get().exclusive();
  create_operators();
  init();
}

uint64_t Backend::getSequenceNumberForGroup() {
  return channel_->launched;
}

void Backend::abort() {
  channel_->first_error.set("it was aborted");
}

Task Backend::task(const Call& call) const {
  const auto reason = channel_->first_error.reason();
  arguments_.check_usable(
      call.name,
      reason.empty() && !mpi_running() ? "MPI was finalised" : reason);
  Task task;
  task.type = call.type;
  task.name = call.name;
  task.timeout = timeout_of(call);
  task.largest = largest_;
  return task;
}

Backend::WorkPtr Backend::launch(Task task) {
  task.staging.close();
  const bool is_message = c10d::isP2POp(task.type);
  auto operation = c10::make_intrusive<Operation>(channel_, std::move(task));
  auto& engine = Engine::get();
  engine.submit(operation);
  if (engine.threading() == Threading::kCaller && !is_message) {
    engine.wait(*operation, Operation::Clock::time_point::max());
  }
  return operation;
}

void Backend::add(Task& task, const at::Tensor& tensor) const {
  arguments_.check_dense(task.name, tensor);
  task.bytes += static_cast<int64_t>(tensor.nbytes());
}

at::Tensor Backend::input(Task& task, const at::Tensor& tensor) const {
  add(task, tensor);
  return task.staging.input(tensor);
}

at::Tensor Backend::output(Task& task, const at::Tensor& tensor) const {
  add(task, tensor);
  task.outputs.push_back(tensor);
  return task.staging.output(tensor);
}

at::Tensor Backend::flat_input(Task& task, const at::Tensor& tensor) const {
  arguments_.check_contiguous(task.name, tensor);
  return input(task, tensor);
}

at::Tensor Backend::flat_output(Task& task, const at::Tensor& tensor) const {
  arguments_.check_contiguous(task.name, tensor);
  return output(task, tensor);
}

Backend::WorkPtr Backend::message(
    const Call& call,
    const at::Tensor& tensor,
    int peer,
    int tag) {
  auto task = this->task(call);
  task.staging.messages();
  const bool sends = call.type == c10d::OpType::SEND;
  const int other =
      call.type == c10d::OpType::RECVANYSOURCE ? MPI_ANY_SOURCE : peer;
  const auto memory = sends ? input(task, tensor) : output(task, tensor);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto bytes = bytes_of(memory);
    sends ? requests.send(bytes, other, tag, *channel->comm)
          : requests.receive(bytes, other, tag, *channel->comm);
  });
  return launch(std::move(task));
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto task = this->task({c10d::OpType::BARRIER, "barrier", options});
  task.steps.push_back([channel = channel_](Requests& requests) {
    check_mpi(
        MPI_Ibarrier(channel->comm->get(), requests.next()), "MPI_Ibarrier");
  });
  return launch(std::move(task));
}

} // namespace ddp::backends::mpi
