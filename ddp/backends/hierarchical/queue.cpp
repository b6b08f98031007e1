#include <ddp/backends/hierarchical/queue.h>

#include <utility>

namespace ddp::backends::hierarchical {

std::shared_ptr<Queue> Queue::start(std::function<void()> break_off) {
  const std::shared_ptr<Queue> queue(new Queue(std::move(break_off)));
  queue->add_thread();
  return queue;
}

Queue::Queue(std::function<void()> break_off)
    : break_off_(std::move(break_off)) {}

void Queue::add_thread() {
  threads_.emplace_back([self = shared_from_this()] { self->run(); });
}

void Queue::stop() {
  bool under_way = false;
  decltype(threads_) threads;
  {
    const Lock lock(mutex_);
    ending_ = true;
    under_way = running_ || !waiting_.empty();
    if (under_way) {
      first_error_.set(
          "the group was destroyed while operations were under way");
    }
    threads.swap(threads_);
  }
  changed_.notify_all();
  if (under_way) {
    break_off_();
  }
  for (auto& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach(); // the last owner was a callback
    } else {
      thread.join();
    }
  }
}

void Queue::push(const c10::intrusive_ptr<Operation>& operation) {
  {
    const Lock lock(mutex_);
    operation->number_ = ++pushed_;
    waiting_.push_back(operation);
  }
  changed_.notify_one();
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
  Lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [this] { return !running_ && (ending_ || !waiting_.empty()); });
    if (waiting_.empty()) {
      return;
    }
    auto operation = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    const auto error = run(*operation);
    lock.lock();
    running_ = false;
    complete(lock, *operation, error);
    lock.unlock();
    operation.reset(); // outside of the lock, with what hangs on its future
    lock.lock();
  }
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

void Queue::complete(
    Lock& lock,
    Operation& operation,
    const std::string& error) {
  const auto future = operation.settle(error);
  ++calling_back_;
  if (future && calling_back_ >= threads_.size() && !ending_) {
    add_thread();
  }
  lock.unlock();
  if (future) {
    changed_.notify_all();
  }
  const auto trouble = operation.call_back(future);
  if (!trouble.empty()) {
    fail(trouble);
  }
  operation.finish(operation.error_);
  lock.lock();
  --calling_back_;
  if (ending_) {
    changed_.notify_all();
  }
}

} // namespace ddp::backends::hierarchical
