#include <ddp/backends/hierarchical/operation.h>

#include <ddp/detail/error_text.h>

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
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))),
      body_(std::move(body)) {}

std::vector<at::Tensor> Operation::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
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

void Operation::complete(const std::string& error) {
  body_ = nullptr; // and with it the tensors
  if (error.empty()) {
    future_->markCompleted(c10::IValue(outputs_));
    finish();
    return;
  }
  const auto exception = std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error));
  future_->setError(exception);
  finish(exception);
}

} // namespace ddp::backends::hierarchical
