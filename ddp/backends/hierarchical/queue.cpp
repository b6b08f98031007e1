#include <ddp/backends/hierarchical/queue.h>

#include <ddp/support/detached_task.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>

namespace ddp::backends::hierarchical {
namespace {

/// The queue to which the thread belongs, if any.
thread_local const Queue* own_queue = nullptr;

} // namespace

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

Operation::Future Operation::complete(const std::string& error) {
  body_ = nullptr; // releases the tensors
  if (!error.empty()) {
    set_error(error);
  }
  return end_future();
}

Queue::Queue(std::function<void()> break_off)
    : break_off_(std::move(break_off)) {}

void Queue::stop() {
  Lock lock(mutex_);
  if (running_ || !waiting_.empty()) {
    first_error_.set("the group was destroyed while operations were running");
    lock.unlock();
    break_off_();
    lock.lock();
  }
  const int own = own_queue == this ? 1 : 0; // the last owner was a callback
  thread_ended_.wait(lock, [&] { return threads_ == own; });
}

void Queue::push(const c10::intrusive_ptr<Operation>& operation) {
  const Lock lock(mutex_);
  provide_thread();
  operation->number_ = ++pushed_;
  waiting_.push_back(operation);
}

void Queue::provide_thread() {
  if (threads_ == calling_back_) {
    detail::start_detached([self = shared_from_this()] { self->run(); });
    ++threads_;
  }
}

void Queue::break_off(const std::string& reason) {
  first_error_.set(reason);
}

std::string Queue::first_error() const {
  return first_error_.reason();
}

uint64_t Queue::pushed() const {
  const Lock lock(mutex_);
  return pushed_;
}

void Queue::run() {
  own_queue = this;
  Lock lock(mutex_);
  while (!running_ && !waiting_.empty()) {
    auto operation = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    const auto future = operation->complete(run(*operation));
    lock.lock();
    running_ = false;
    calling_back_ += future ? 1 : 0;
    if (!waiting_.empty()) {
      provide_thread();
    }
    lock.unlock();
    const auto trouble = operation->call_back(future);
    if (!trouble.empty()) {
      fail(trouble);
    }
    operation->finish(operation->error_);
    operation.reset(); // may call the program: without the lock
    lock.lock();
    calling_back_ -= future ? 1 : 0;
  }
  own_queue = nullptr;
  --threads_;
  thread_ended_.notify_all();
}

std::string Queue::run(Operation& operation) {
  auto error = first_error();
  if (error.empty()) {
    error = operation.run();
    if (!error.empty()) {
      fail(error);
    }
  }
  return error;
}

void Queue::fail(const std::string& reason) {
  break_off(reason);
  break_off_();
}

} // namespace ddp::backends::hierarchical
