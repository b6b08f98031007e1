#include <ddp/backends/shm/engine.h>

#include <ddp/internal/check.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>

namespace ddp::backends::shm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Longer than a small operation and its wait, which thus need no thread.
constexpr microseconds kDelay(100);
// The delay while another thread drives the operations.
constexpr microseconds kLongDelay(2000);
// How long a wait spins if each rank has a core.
constexpr microseconds kSpin(50);
// The maximum of one wait on a condition variable.
constexpr std::chrono::hours kLongest(1);

nanoseconds spin_of(int ranks) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores >= ranks ? kSpin : nanoseconds(0);
}

/// Whether no caller can wait for the operation.
bool is_forgotten(const c10::intrusive_ptr<Operation>& operation) {
  return operation.use_count() == 1;
}

} // namespace

Operation::Operation(std::shared_ptr<Engine> engine, Task task, uint64_t number)
    : BackendWork(
          {"shm",
           engine->context().name(engine->context().rank()),
           engine->context().named_size()},
          task),
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
    DDP_CHECK(reason.empty(), "the group has already failed: {}", reason);
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
      engine_->context().finish_step();
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
  auto& context = engine_->context();
  if (context.all_finished(std::min(until, deadline_), spin)) {
    return true;
  }
  DDP_CHECK(
      Clock::now() < deadline_,
      "{}, waiting for {}",
      timed_out_after(timeout_),
      context.missing());
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

void Operation::complete_future() {
  const auto error = call_back(end_future());
  if (!error.empty()) {
    engine_->break_group(error); // the group's next use throws it
  }
}

Engine::Engine(std::unique_ptr<Context> context)
    : context_(std::move(context)), spin_(spin_of(context_->size())) {}

Engine::~Engine() {
  context_->leave();
}

c10::intrusive_ptr<Operation> Engine::submit(Task task) {
  Lock lock(mutex_);
  const bool waited_for = task.waited_for;
  auto operation = c10::make_intrusive<Operation>(
      shared_from_this(), std::move(task), ++count_);
  queue_.push_back(operation);
  if (!driving_) {
    drive(lock, Clock::time_point::min(), nanoseconds(0));
  }
  if (!operation->done_ && !waited_for) {
    wake(kDelay);
  }
  return operation;
}

bool Engine::wait(Operation& operation, Clock::time_point until) {
  Lock lock(mutex_);
  while (!operation.done_) {
    if (!driving_) {
      drive(lock, until, spin_);
    } else {
      ++waiting_;
      changed_.wait_until(lock, std::min(until, Clock::now() + kLongest));
      --waiting_;
    }
    if (!operation.done_ && Clock::now() >= until) {
      break;
    }
  }
  if (!queue_.empty()) {
    wake(kDelay);
  }
  return operation.done_;
}

void Engine::poll() {
  Lock lock(mutex_);
  if (!driving_) {
    drive(lock, Clock::time_point::min(), nanoseconds(0));
  }
}

void Engine::take_over() {
  const Lock lock(mutex_);
  if (!queue_.empty()) {
    alarmed_ = false;
    wake(microseconds(0));
  }
}

void Engine::drive(Lock& lock, Clock::time_point until, nanoseconds spin) {
  while (!queue_.empty() && !driving_) {
    const auto operation = queue_.front();
    driving_ = true;
    lock.unlock();
    const bool ended = operation->advance(until, spin);
    lock.lock();
    driving_ = false;
    if (ended) {
      queue_.pop_front();
      operation->conclude();
    }
    if (waiting_ > 0) {
      changed_.notify_all();
    }
    if (!ended) {
      return;
    }
    lock.unlock();
    operation->complete_future(); // its callbacks may use the group
    lock.lock();
    until = Clock::time_point::min();
  }
}

void Engine::wake(microseconds delay) {
  if (alarmed_ || stopping_) {
    return;
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  }
  timer_.set(delay);
  alarmed_ = true;
}

void Engine::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    timer_.wait();
    lock.lock();
    alarmed_ = false;
    while (!queue_.empty() && !driving_ && !stopping_) {
      drive(lock, Clock::now() + kLook, nanoseconds(0));
    }
    if (!queue_.empty()) {
      wake(kLongDelay);
    }
  }
}

void Engine::stop() {
  std::thread thread;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    timer_.set(nanoseconds(0));
  }
  if (thread.joinable()) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach(); // the last owner was a callback
    } else {
      thread.join();
    }
  }
  decltype(queue_) forgotten; // the thread has released its own
  {
    const Lock lock(mutex_);
    if (std::all_of(queue_.begin(), queue_.end(), is_forgotten)) {
      forgotten.swap(queue_);
    }
  }
  if (!forgotten.empty()) {
    break_group("the group was destroyed while operations were running");
  }
}

std::string Engine::first_error() const {
  return first_error_.reason();
}

void Engine::break_group(const std::string& reason) {
  if (first_error_.set(reason)) {
    context_->abort(reason);
  }
}

uint64_t Engine::count() const {
  const Lock lock(mutex_);
  return count_;
}

} // namespace ddp::backends::shm
