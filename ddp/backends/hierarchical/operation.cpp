#include <ddp/backends/hierarchical/operation.h>

#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::hierarchical {

Operation::Operation(
    const Member& member,
    OperationInfo info,
    std::function<void()> body)
    : BackendWork(member, std::move(info)), body_(std::move(body)) {}

bool Operation::ends_until(Clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_ended = [this] { return completed_; };
  if (until < Clock::time_point::max()) {
    return cv_.wait_until(lock, until, has_ended);
  }
  cv_.wait(lock, has_ended);
  return true;
}

std::string Operation::run() {
  try {
    const at::AutoDispatchBelowADInplaceOrView guard;
    body_();
    return "";
  } catch (const std::exception& error) {
    return description() + " failed " + detail::error_text(error);
  }
}

Operation::Future Operation::settle(const std::string& error) {
  body_ = nullptr; // and with it the tensors
  if (!error.empty()) {
    set_error(error);
  }
  return end_future();
}

} // namespace ddp::backends::hierarchical
