#include <ddp/backends/common/backend_work.h>

#include <common/seconds.h>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends {

BackendWork::BackendWork(
    int rank,
    c10d::OpType type,
    const char* name,
    std::vector<at::Tensor> outputs)
    : Work(rank, type, name), name_(name), outputs_(std::move(outputs)) {}

bool BackendWork::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  TORCH_CHECK_WITH(
      DistBackendError,
      ends_until(
          limited ? Clock::now() + bounded(timeout) : Clock::time_point::max()),
      description(),
      " is not complete after a wait of ",
      seconds(timeout),
      " s; it goes on and can be waited for again");
  if (error_) {
    std::rethrow_exception(error_);
  }
  synchronize();
  return true;
}

std::vector<at::Tensor> BackendWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> BackendWork::getFuture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = make_future();
    if (has_ended_) {
      complete_future(*future_);
    }
  }
  return future_;
}

uint64_t BackendWork::getSequencenumber() const {
  return number_;
}

BackendWork::Future BackendWork::make_future() const {
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()));
}

void BackendWork::complete_future(c10::ivalue::Future& future) const {
  error_ ? future.setError(error_)
         : future.markCompleted(c10::IValue(outputs_));
}

void BackendWork::set_error(const std::string& text) {
  error_ = std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

BackendWork::Future BackendWork::end_future() {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_ended_ = true;
  return future_;
}

} // namespace ddp::backends
