#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>

namespace ddp::backends::hierarchical {

/// A collective that runs on a thread of the queue.
class Operation final : public BackendWork {
 public:
  /// `body` throws if it fails.
  Operation(
      const Member& member,
      OperationInfo info,
      std::function<void()> body);

 private:
  friend class Queue;

  /// Runs the operation and returns its error; empty if the operation
  /// succeeded.
  std::string run();
  /// Sets the result. Returns the future if one was requested; otherwise null.
  Future complete(const std::string& error);
  bool ends_until(Clock::time_point until) override;

  std::function<void()> body_;
};

/// Runs operations one after another, in the order of the calls, on other
/// threads. While one thread runs the callbacks of an operation's future, which
/// may use the queue, another thread continues. The first operation that fails
/// breaks the queue: later operations fail for the same reason.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  /// `break_off` is called when an operation has failed, or must be aborted.
  explicit Queue(std::function<void()> break_off);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Aborts the running operation, and waits for all threads except the calling
  /// thread. If the calling thread belongs to the queue, that thread ends when
  /// its callback returns.
  void stop();

  void push(const c10::intrusive_ptr<Operation>& operation);
  void break_off(const std::string& reason);
  /// The reason why the queue is broken; empty if the queue is usable.
  std::string first_error() const;
  uint64_t pushed() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Starts a thread if no thread will take the next operation.
  void provide_thread();
  void run();
  /// Returns the operation's error; empty if the operation succeeded.
  std::string run(Operation& operation);
  void fail(const std::string& reason);

  const std::function<void()> break_off_;
  mutable std::mutex mutex_;
  std::condition_variable thread_ended_;
  std::deque<c10::intrusive_ptr<Operation>> waiting_;
  detail::FirstError first_error_;
  uint64_t pushed_ = 0;
  bool running_ = false;
  /// The number of threads, and the number of threads that run callbacks.
  int threads_ = 0;
  int calling_back_ = 0;
};

} // namespace ddp::backends::hierarchical
