#include <ddp/backends/hierarchical/queue.h>

#include <utility>

namespace ddp::backends::hierarchical {

Queue::Queue(std::function<void()> on_failure)
    : on_failure_(std::move(on_failure)), thread_([this] { run(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Queue::push(const c10::intrusive_ptr<Operation>& operation) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    operation->number_ = ++pushed_;
    waiting_.push_back(operation);
  }
  changed_.notify_one();
}

void Queue::break_off(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (breakage_.empty()) {
    breakage_ = reason;
  }
}

std::string Queue::breakage() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return breakage_;
}

uint64_t Queue::pushed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

void Queue::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    auto operation = std::move(waiting_.front());
    waiting_.pop_front();
    auto error = breakage_;
    lock.unlock();
    if (error.empty()) {
      error = operation->run();
      if (!error.empty()) {
        break_off(error);
        on_failure_();
      }
    }
    operation->complete(error);
    operation.reset(); // outside of the lock, with what hangs on its future
    lock.lock();
  }
}

} // namespace ddp::backends::hierarchical
