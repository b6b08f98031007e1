// Messages between two ranks, and barriers.

#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm/barrier.h>
#include <ddp/backends/shm/receipt_work.h>

#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace ddp::backends::shm {
namespace {

/// Of the messages of a monitored barrier.
constexpr int kArrivalTag = -1;

void check_tag(int tag) {
  TORCH_CHECK_VALUE(
      tag >= 0, "a message over shm has a tag of 0 or more, got ", tag);
}

/// Of what is done already.
c10::intrusive_ptr<c10d::Work> done(const std::vector<at::Tensor>& tensors) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(tensors));
  return c10d::Work::create_from_future(future);
}

} // namespace

Backend::WorkPtr Backend::send(Tensors& tensors, int peer, int tag) {
  check_tag(tag);
  const auto task =
      this->task({c10d::OpType::SEND, "send", c10d::kUnsetTimeout});
  arguments_.check_peer(task.name, peer);
  const auto& tensor = arguments_.only(task.name, tensors);
  check_input(task, tensor);
  mailbox_->send(tensor, peer, tag);
  return done(tensors);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int peer, int tag) {
  check_tag(tag);
  arguments_.check_peer("recv", peer);
  return receive("recv", tensors, peer, tag, c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  check_tag(tag);
  return receive(
      "recv_anysource", tensors, kAnySource, tag, c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::receive(
    const char* name,
    const Tensors& tensors,
    int source,
    int tag,
    std::chrono::milliseconds timeout) {
  const auto task = this->task({c10d::OpType::RECV, name, timeout});
  auto receipt = std::make_shared<Receipt>();
  receipt->source = source;
  receipt->tag = tag;
  receipt->tensor = arguments_.only(task.name, tensors);
  check_input(task, receipt->tensor);
  return c10::make_intrusive<ReceiptWork>(
      engine_, mailbox_, std::move(receipt), name, task.timeout);
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  auto task = this->task(
      {c10d::OpType::BARRIER, "barrier", options.timeout, options.asyncOp});
  task.collective = std::make_unique<Barrier>(team());
  return launch(std::move(task));
}

void Backend::monitoredBarrier(
    const c10d::BarrierOptions& options,
    bool /*wait_all_ranks*/) {
  check_usable("monitored_barrier");
  const auto token = at::zeros({1}, at::kByte);
  if (rank_ != 0) {
    mailbox_->send(token, 0, kArrivalTag);
    barrier(options)->wait();
    return;
  }
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < size_; ++rank) {
    arrivals.push_back(receive(
        "monitored_barrier", {token}, rank, kArrivalTag, options.timeout));
  }
  std::ostringstream missing;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    try {
      arrivals[i]->wait();
    } catch (const c10::DistBackendError&) {
      missing << (missing.tellp() > 0 ? ", " : "") << i + 1;
    }
  }
  TORCH_CHECK_WITH(
      DistBackendError,
      missing.tellp() == 0,
      "monitored_barrier over shm on rank 0 of ",
      size_,
      ": these ranks did not come in time: ",
      missing.str());
  barrier(options)->wait();
}

} // namespace ddp::backends::shm
