#include <ddp/backends/common/backend_work.h>

#include <ddp/internal/check.h>
#include <ddp/support/error_text.h>

#include <ATen/core/ivalue.h>

namespace ddp::backends {

bool ends_within(std::chrono::milliseconds time, c10d::Work& work) {
  const auto start = BackendWork::Clock::now();
  try {
    work.wait(time);
    return true;
  } catch (const std::exception&) { // an error is thrown again below
    if (!work.isCompleted() && BackendWork::Clock::now() - start >= time) {
      return false;
    }
  }
  work.wait(); // also if a backend supports no timeout
  return true;
}

BackendWork::BackendWork(const Member& member, OperationInfo info)
    : Work(member.rank, info.type, info.name),
      member_(member),
      name_(info.name),
      outputs_(std::move(info.outputs)),
      bytes_(info.bytes),
      timeout_(info.timeout),
      deadline_(Clock::now() + bounded(info.timeout)) {}

std::string BackendWork::description() const {
  const auto& [backend, rank, size] = member_;
  std::string text = name_;
  text += bytes_ < 0 ? "" : c10::str(" of ", bytes_, " bytes");
  text +=
      number_ == 0 ? "" : c10::str(" (operation ", number_, " of its group)");
  return c10::str(text, " over ", backend, " on rank ", rank, " of ", size);
}

bool BackendWork::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  DDP_CHECK_WITH(
      DistBackendError,
      ends_until(
          limited ? Clock::now() + bounded(timeout) : Clock::time_point::max()),
      "{} is not complete after a wait of {} s; it continues, and wait() can "
      "be called again",
      description(),
      seconds(timeout));
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

std::string BackendWork::call_back(const Future& future) const {
  const auto said = c10::str("a callback on the future of ", name_, " threw ");
  try {
    if (future) {
      complete_future(*future);
    }
    return "";
  } catch (const std::exception& error) {
    return said + detail::error_text(error);
  } catch (...) {
    return said + "an exception that is not a std::exception";
  }
}

} // namespace ddp::backends
