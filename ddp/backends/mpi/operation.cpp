#include <ddp/backends/mpi/operation.h>

#include <common/seconds.h>
#include <ddp/backends/mpi/engine.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::mpi {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> future_on(const Staging& staging) {
  std::vector<at::Device> devices;
  if (const auto device = staging.device()) {
    devices.push_back(*device);
  }
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), devices);
}

} // namespace

Channel::Channel(std::unique_ptr<Comm> its_comm)
    : comm(std::move(its_comm)), rank(comm->rank()), size(comm->size()) {}

void Channel::set_breakage(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (breakage_.empty()) {
    breakage_ = reason;
  }
}

std::string Channel::breakage() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return breakage_;
}

Operation::Operation(std::shared_ptr<Channel> channel, Task task)
    : Work(channel->rank, task.type, task.name),
      channel_(std::move(channel)),
      task_(std::move(task)),
      number_(++channel_->launched),
      deadline_(Clock::now() + bounded(task_.timeout)),
      requests_(std::in_place, task_.largest) {}

bool Operation::isCompleted() {
  Engine::get().poll();
  return done_;
}

bool Operation::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  const auto until =
      limited ? Clock::now() + bounded(timeout) : Clock::time_point::max();
  if (!Engine::get().wait(*this, until)) {
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
  synchronize();
  return true;
}

void Operation::synchronize() {
  task_.staging.synchronize();
}

int Operation::sourceRank() const {
  TORCH_CHECK(done_, "sourceRank: the receive is not complete");
  return source_;
}

std::vector<at::Tensor> Operation::result() {
  return task_.outputs;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  Engine::get().take_over();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = future_on(task_.staging);
    if (settled_) {
      settle(*future_);
    }
  }
  return future_;
}

uint64_t Operation::getSequencenumber() const {
  return number_;
}

bool Operation::ready() {
  try {
    return task_.staging.ready();
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return true;
  }
}

bool Operation::start() {
  if (error_) {
    return false;
  }
  try {
    channel_->occupied = static_cast<bool>(task_.second_step);
    for (const auto& step : task_.steps) {
      step(*requests_);
    }
    return true;
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return false;
  }
}

Operation::State Operation::test() {
  try {
    if (!requests_->test()) {
      return State::kPending;
    }
    if (const auto step = std::exchange(task_.second_step, nullptr)) {
      step(*requests_);
      channel_->occupied = false;
      return State::kPending;
    }
    source_ = requests_->source();
    requests_.reset(); // here, where MPI may be called
    return State::kDone;
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return State::kFailed;
  }
}

void Operation::time_out() {
  fail(c10::str(
      "timed out after ",
      seconds(task_.timeout),
      " s. Has every rank called it, with tensors of the same size?"));
}

void Operation::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  channel_->set_breakage(text);
  channel_->occupied = false;
  error_ = std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

void Operation::complete() {
  if (claimed_.exchange(true)) {
    return;
  }
  try {
    if (!error_) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (const auto& function : task_.finish) {
        function();
      }
      task_.staging.finish();
    }
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    settled_ = true;
    future = future_;
  }
  if (future) {
    settle(*future);
  }
  if (!abandoned_) {
    task_.steps.clear();
    task_.finish.clear();
  }
  finish(error_);
  done_ = true;
}

void Operation::settle(c10::ivalue::Future& future) const {
  task_.staging.on_streams([&] {
    error_ ? future.setError(error_)
           : future.markCompleted(c10::IValue(task_.outputs));
  });
}

std::string Operation::description() const {
  return c10::str(
      task_.name,
      " of ",
      task_.bytes,
      " bytes (operation ",
      number_,
      " of its group) over mpi on rank ",
      channel_->rank,
      " of ",
      channel_->size);
}

} // namespace ddp::backends::mpi
