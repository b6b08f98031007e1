#include <ddp/backends/mpi/backend.h>

#include <ATen/ops/zeros.h>
#include <ddp/backends/mpi/operators.h>
#include <ddp/internal/check.h>

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
  arguments_.check_usable(
      call.name, reason.empty() && !mpi_running() ? kFinalized : reason);
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
  if (!is_message && !engine.may_be_pending()) {
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

Backend::WorkPtr Backend::message(
    const Call& call,
    const at::Tensor& tensor,
    int peer,
    int tag) {
  auto task = this->task(call);
  task.staging.messages();
  const bool sends = call.type == c10d::OpType::SEND;
  const auto memory = sends ? input(task, tensor) : output(task, tensor);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto bytes = bytes_of(memory);
    sends ? requests.send(bytes, peer, tag, *channel->comm)
          : requests.receive(bytes, peer, tag, *channel->comm);
  });
  return launch(std::move(task));
}

Backend::WorkPtr Backend::checked_message(
    const Call& call,
    const Tensors& tensors,
    int peer,
    int tag) {
  DDP_CHECK_VALUE(
      tag >= 0 && tag < kFirstReservedTag,
      "{} requires a tag in [0, {}), got {}",
      arguments_.over("a message"),
      kFirstReservedTag,
      tag);
  return message(call, arguments_.only(call.name, tensors), peer, tag);
}

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  arguments_.check_peer("send", peer);
  return checked_message({c10d::OpType::SEND, "send"}, tensors, peer, tag);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  arguments_.check_peer("recv", peer);
  return checked_message({c10d::OpType::RECV, "recv"}, tensors, peer, tag);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const Call call{c10d::OpType::RECVANYSOURCE, "recv_anysource"};
  return checked_message(call, tensors, MPI_ANY_SOURCE, tag);
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool /*wait_all_ranks*/) {
  const Call call{
      rank_ == 0 ? c10d::OpType::RECV : c10d::OpType::SEND,
      "monitored_barrier",
      options};
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < size_; ++rank) {
    if (rank_ == 0 || rank_ == rank) {
      const auto token = at::zeros({1}, at::kByte);
      arrivals.push_back(
          message(call, token, rank_ == 0 ? rank : 0, kFirstReservedTag));
    }
  }
  std::string missing;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    try {
      arrivals[i]->wait();
    } catch (const c10::DistBackendError&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(i + 1);
    }
  }
  DDP_CHECK_WITH(
      DistBackendError,
      rank_ > 0 || missing.empty(),
      "{} on rank 0 of {}: these ranks were late: {}",
      arguments_.over(call.name),
      size_,
      missing);
  barrier(options)->wait();
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
