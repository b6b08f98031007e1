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
    std::shared_ptr<Receipt> receipt,
    const char* name,
    std::chrono::milliseconds timeout)
    : Work(engine->team().rank(), c10d::OpType::RECV, name),
      engine_(std::move(engine)),
      mailbox_(std::move(mailbox)),
      receipt_(std::move(receipt)),
      name_(name),
      timeout_(timeout),
      deadline_(Clock::now() + bounded(timeout)) {
  mailbox_->expect(receipt_);
}

ReceiptWork::~ReceiptWork() {
  mailbox_->forget(*receipt_);
}

bool ReceiptWork::isCompleted() {
  return ends_until(Clock::time_point::min());
}

bool ReceiptWork::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  TORCH_CHECK_WITH(
      DistBackendError,
      ends_until(
          limited ? Clock::now() + bounded(timeout) : Clock::time_point::max()),
      description(),
      " is not complete after a wait of ",
      seconds(timeout),
      " s; it goes on and can be waited for again");
  if (const auto error = exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

int ReceiptWork::sourceRank() const {
  TORCH_CHECK(receipt_->done, "sourceRank: the receive is not complete");
  return receipt_->sender;
}

std::vector<at::Tensor> ReceiptWork::result() {
  return {receipt_->tensor};
}

c10::intrusive_ptr<c10::ivalue::Future> ReceiptWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()));
  auto self =
      c10::intrusive_ptr<ReceiptWork>::unsafe_reclaim_from_nonowning(this);
  std::thread([self, future] {
    self->ends_until(Clock::time_point::max());
    const auto error = self->exception();
    const auto thrown = callback_error(self->name_, [&] {
      error ? future->setError(error)
            : future->markCompleted(c10::IValue(self->result()));
    });
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
    if (mailbox_->wait(*receipt_, std::min(until, deadline_))) {
      TORCH_CHECK(receipt_->error.empty(), receipt_->error);
      conclude(nullptr);
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

void ReceiptWork::conclude(std::exception_ptr error) {
  const std::lock_guard<std::mutex> lock(ending_);
  if (!concluded_) {
    finish(std::move(error));
    concluded_ = true;
  }
}

void ReceiptWork::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  engine_->break_group(text);
  conclude(std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text)));
}

std::string ReceiptWork::description() const {
  return c10::str(
      name_,
      " of ",
      receipt_->tensor.nbytes(),
      " bytes over shm on rank ",
      engine_->team().rank(),
      " of ",
      engine_->team().size());
}

} // namespace ddp::backends::shm
