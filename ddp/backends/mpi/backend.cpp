#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/operators.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
Backend::Backend(
    std::shared_ptr<Channel> channel,
    std::chrono::milliseconds timeout,
    int64_t largest)
    : CollectiveBackend("mpi", channel->rank, channel->size, timeout),
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
  if (!reason.empty() || !mpi_running()) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            call.name,
            " over mpi on rank ",
            rank_,
            " of ",
            size_,
            reason.empty() ? ": MPI was finalised"
                           : ": the group failed before: " + reason));
  }
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

} // namespace ddp::backends::mpi
