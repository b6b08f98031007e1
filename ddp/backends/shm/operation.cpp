#include <ddp/backends/shm/operation.h>

#include <common/seconds.h>
#include <ddp/backends/common/callback_error.h>
#include <ddp/backends/shm/engine.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::shm {
Operation::Operation(std::shared_ptr<Engine> engine, Task task, uint64_t number)
    : Work(engine->team().rank(), task.type, task.name),
      engine_(std::move(engine)),
      task_(std::move(task)),
      number_(number),
      deadline_(Clock::now() + bounded(task_.timeout)) {}

bool Operation::isCompleted() {
  if (!done_) {
    engine_->poll();
  }
  return done_;
}

bool Operation::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  const auto until =
      limited ? Clock::now() + bounded(timeout) : Clock::time_point::max();
  if (!engine_->wait(*this, until)) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            description(),
            " is not complete after a wait of ",
            seconds(timeout),
            " s; it goes on and can be waited for again"));
  }
  if (error_) {
    std::rethrow_exception(error_);
  }
  return true;
}

std::vector<at::Tensor> Operation::result() {
  return task_.outputs;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  engine_->take_over();
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

bool Operation::advance(
    Clock::time_point until,
    std::chrono::nanoseconds spin) {
  try {
    const auto breakage = engine_->breakage();
    TORCH_CHECK(breakage.empty(), "the group failed before: ", breakage);
    do {
      if (others_awaited_) {
        if (!await_others(until, spin)) {
          return false;
        }
        others_awaited_ = false;
      }
      if (!task_.collective->step()) {
        break;
      }
      engine_->team().finish_step();
      others_awaited_ = true;
    } while (true);
    if (task_.finish) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      task_.finish();
    }
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
  }
  task_.collective.reset();
  task_.finish = nullptr;
  return true;
}

bool Operation::await_others(
    Clock::time_point until,
    std::chrono::nanoseconds spin) {
  auto& team = engine_->team();
  if (team.all_finished(std::min(until, deadline_), spin)) {
    return true;
  }
  TORCH_CHECK(
      Clock::now() < deadline_,
      "timed out after ",
      seconds(task_.timeout),
      " s. Waited for rank ",
      team.missing(),
      ". Has every rank called it, with tensors of the same size?");
  return false;
}

void Operation::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  engine_->break_group(text);
  error_ = std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

void Operation::conclude() {
  finish(error_);
  done_ = true;
}

void Operation::settle() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    settled_ = true;
    future = future_;
  }
  if (!future) {
    return;
  }
  const auto error = callback_error(task_.name, [&] { tell(*future); });
  if (!error.empty()) {
    engine_->break_group(error); // the group's next use throws it
  }
}

void Operation::tell(c10::ivalue::Future& future) const {
  error_ ? future.setError(error_)
         : future.markCompleted(c10::IValue(task_.outputs));
}

std::string Operation::description() const {
  return c10::str(
      task_.name,
      " of ",
      task_.bytes,
      " bytes (operation ",
      number_,
      " of its group) over shm on rank ",
      engine_->team().rank(),
      " of ",
      engine_->team().size());
}

} // namespace ddp::backends::shm
