#include <ddp/backends/hierarchical/operation.h>

#include <ddp/backends/common/callback_error.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::hierarchical {

Operation::Operation(
    int rank,
    c10d::OpType type,
    const char* name,
    std::vector<at::Tensor> outputs,
    std::function<void()> body)
    : Work(rank, type, name),
      name_(name),
      outputs_(std::move(outputs)),
      body_(std::move(body)) {}

std::vector<at::Tensor> Operation::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()));
    if (settled_) {
      tell(*future_);
    }
  }
  return future_;
}

uint64_t Operation::getSequencenumber() const {
  return number_;
}

std::string Operation::run() {
  try {
    const at::AutoDispatchBelowADInplaceOrView guard;
    body_();
    return "";
  } catch (const std::exception& error) {
    return c10::str(
        name_,
        " (operation ",
        number_,
        " of its group) over hierarchical on rank ",
        rank_,
        " failed ",
        detail::error_text(error));
  }
}

Operation::Future Operation::settle(const std::string& error) {
  body_ = nullptr; // and with it the tensors
  const std::lock_guard<std::mutex> lock(mutex_);
  settled_ = true;
  if (!error.empty()) {
    error_ = std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error));
  }
  return future_;
}

std::string Operation::call_back(const Future& future) const {
  return callback_error(name_, [&] {
    if (future) {
      tell(*future);
    }
  });
}

void Operation::tell(c10::ivalue::Future& future) const {
  error_ ? future.setError(error_)
         : future.markCompleted(c10::IValue(outputs_));
}

} // namespace ddp::backends::hierarchical
