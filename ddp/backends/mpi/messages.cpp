// Messages between two ranks, and barriers.

#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/error.h>
#include <ddp/backends/mpi/tags.h>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace ddp::backends::mpi {
namespace {

const char* name_of(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::SEND:
      return "send";
    case c10d::OpType::RECV:
      return "recv";
    default:
      return "recv_anysource";
  }
}

void check_tag(int tag) {
  TORCH_CHECK_VALUE(
      tag >= 0 && tag < kFirstReservedTag,
      "a message over mpi has a tag in [0, ",
      kFirstReservedTag,
      "), got ",
      tag);
}

} // namespace

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  check_tag(tag);
  return message(c10d::OpType::SEND, tensors, peer, tag, c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  check_tag(tag);
  return message(c10d::OpType::RECV, tensors, peer, tag, c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  check_tag(tag);
  return message(
      c10d::OpType::RECVANYSOURCE,
      tensors,
      MPI_ANY_SOURCE,
      tag,
      c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::message(
    c10d::OpType type,
    const Tensors& tensors,
    int peer,
    int tag,
    std::chrono::milliseconds timeout) {
  auto task = this->task({type, name_of(type), timeout});
  if (type != c10d::OpType::RECVANYSOURCE) {
    arguments_.check_peer(task.name, peer);
  }
  task.staging.messages();
  const bool sends = type == c10d::OpType::SEND;
  const auto& tensor = arguments_.only(task.name, tensors);
  const auto memory = sends ? input(task, tensor) : output(task, tensor);
  task.steps.push_back([=, channel = channel_](Requests& requests) {
    const auto bytes = bytes_of(memory);
    sends ? requests.send(bytes, peer, tag, *channel->comm)
          : requests.receive(bytes, peer, tag, *channel->comm);
  });
  return launch(std::move(task));
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto task = this->task({c10d::OpType::BARRIER, "barrier", options.timeout});
  task.steps.push_back([channel = channel_](Requests& requests) {
    check_mpi(
        MPI_Ibarrier(channel->comm->get(), requests.next()), "MPI_Ibarrier");
  });
  return launch(std::move(task));
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool /*wait_all_ranks*/) {
  const auto type = rank_ == 0 ? c10d::OpType::RECV : c10d::OpType::SEND;
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < size_; ++rank) {
    if (rank_ == 0 || rank_ == rank) {
      arrivals.push_back(message(
          type,
          {at::zeros({1}, at::kByte)},
          rank_ == 0 ? rank : 0,
          kArrivalTag,
          options.timeout));
    }
  }
  std::ostringstream missing;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    try {
      arrivals[i]->wait();
    } catch (const c10::DistBackendError&) {
      missing << (missing.tellp() > 0 ? ", " : "") << i + 1;
    }
  }
  if (rank_ == 0 && missing.tellp() > 0) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            "monitored_barrier over mpi on rank 0 of ",
            size_,
            ": these ranks did not come in time: ",
            missing.str()));
  }
  barrier(options)->wait();
}

} // namespace ddp::backends::mpi
