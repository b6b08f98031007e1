#include <ddp/backends/mpi/operation.h>

#include <ddp/backends/mpi/engine.h>
#include <ddp/backends/mpi/error.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
namespace {

std::string text_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

c10::intrusive_ptr<c10::ivalue::Future> future_on(const Staging& staging) {
  std::vector<at::Device> devices;
  if (const auto device = staging.device()) {
    devices.push_back(*device);
  }
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), devices);
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
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
      deadline_(Clock::now() + task_.timeout),
      future_(future_on(task_.staging)),
      requests_(std::make_unique<Requests>(task_.largest)) {}

bool Operation::isCompleted() {
  Engine::get().poll();
  return done_;
}

bool Operation::wait(std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0;
  const auto until =
      limited ? Clock::now() + timeout : Clock::time_point::max();
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
  return future_;
}

uint64_t Operation::getSequencenumber() const {
  return number_;
}

bool Operation::ready() {
  try {
    return task_.staging.ready();
  } catch (const std::exception& error) {
    fail(text_of(error));
    return true;
  }
}

bool Operation::start() {
  if (error_) {
    return false;
  }
  try {
    for (const auto& step : task_.steps) {
      step(*requests_);
    }
    return true;
  } catch (const std::exception& error) {
    fail(text_of(error));
    return false;
  }
}

Operation::State Operation::test() {
  try {
    if (!requests_->test()) {
      return State::kPending;
    }
    source_ = requests_->source();
    requests_.reset(); // here, where MPI may be called
    return State::kDone;
  } catch (const std::exception& error) {
    fail(text_of(error));
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
    fail(text_of(error));
  }
  task_.staging.on_streams([this] {
    error_ ? future_->setError(error_)
           : future_->markCompleted(c10::IValue(task_.outputs));
  });
  if (!abandoned_) {
    task_.steps.clear();
    task_.finish.clear();
  }
  finish(error_);
  done_ = true;
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
