#include <ddp/backends/shm/receipt_work.h>

#include <common/seconds.h>
#include <ddp/backends/common/callback_error.h>
#include <ddp/support/error_text.h>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace ddp::backends::shm {

ReceiptWork::ReceiptWork(
    std::shared_ptr<Engine> engine,
    std::shared_ptr<Mailbox> mailbox,
    const char* name,
    const at::Tensor& tensor,
    int source,
    int tag,
    std::chrono::milliseconds timeout)
    : BackendWork(
          {"shm", engine->team().rank(), engine->team().size()},
          c10d::OpType::RECV,
          name,
          {tensor},
          static_cast<int64_t>(tensor.nbytes())),
      engine_(std::move(engine)),
      mailbox_(std::move(mailbox)),
      receipt_{source, tag, tensor},
      timeout_(timeout),
      deadline_(Clock::now() + bounded(timeout)) {
  mailbox_->expect(receipt_);
}

ReceiptWork::~ReceiptWork() {
  mailbox_->forget(receipt_);
}

bool ReceiptWork::isCompleted() {
  return ends_until(Clock::time_point::min());
}

int ReceiptWork::sourceRank() const {
  TORCH_CHECK(receipt_.done, "sourceRank: the receive is not complete");
  return receipt_.sender;
}

c10::intrusive_ptr<c10::ivalue::Future> ReceiptWork::getFuture() {
  auto future = make_future();
  auto self =
      c10::intrusive_ptr<ReceiptWork>::unsafe_reclaim_from_nonowning(this);
  std::thread([self, future] {
    self->ends_until(Clock::time_point::max());
    const auto thrown =
        callback_error(self->name_, [&] { self->complete_future(*future); });
    if (!thrown.empty()) {
      self->engine_->break_group(thrown);
    }
  }).detach();
  return future;
}

bool ReceiptWork::ends_until(Clock::time_point until) {
  if (concluded_) {
    return true;
  }
  try {
    if (mailbox_->wait(receipt_, std::min(until, deadline_))) {
      TORCH_CHECK(receipt_.error.empty(), receipt_.error);
      conclude();
      return true;
    }
    TORCH_CHECK(
        Clock::now() < deadline_,
        "timed out after ",
        seconds(timeout_),
        " s. Has the other rank sent it, with the same tag?");
    return false;
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return true;
  }
}

void ReceiptWork::conclude(const std::string& error) {
  const std::lock_guard<std::mutex> lock(ending_);
  if (!concluded_) {
    if (!error.empty()) {
      set_error(error);
    }
    finish(error_);
    concluded_ = true;
  }
}

void ReceiptWork::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  engine_->break_group(text);
  conclude(text);
}

} // namespace ddp::backends::shm
