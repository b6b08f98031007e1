#include <ddp/backends/shm/operation.h>

#include <ddp/backends/shm/engine.h>
#include <ddp/internal/check.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

namespace ddp::backends::shm {

Operation::Operation(std::shared_ptr<Engine> engine, Task task, uint64_t number)
    : BackendWork({"shm", engine->team().rank(), engine->team().size()}, task),
      engine_(std::move(engine)),
      task_(std::move(task)) {
  number_ = number;
}

bool Operation::isCompleted() {
  if (!done_) {
    engine_->poll();
  }
  return done_;
}

bool Operation::ends_until(Clock::time_point until) {
  return engine_->wait(*this, until);
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  engine_->take_over();
  return BackendWork::getFuture();
}

bool Operation::advance(
    Clock::time_point until,
    std::chrono::nanoseconds spin) {
  try {
    const auto reason = engine_->first_error();
    DDP_CHECK(reason.empty(), "the group failed before: {}", reason);
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
  DDP_CHECK(
      Clock::now() < deadline_,
      "{}, waiting for {}",
      timed_out_after(timeout_),
      team.missing());
  return false;
}

void Operation::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  engine_->break_group(text);
  set_error(text);
}

void Operation::conclude() {
  finish(error_);
  done_ = true;
}

void Operation::settle() {
  const auto error = call_back(end_future());
  if (!error.empty()) {
    engine_->break_group(error); // the group's next use throws it
  }
}

} // namespace ddp::backends::shm
