#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>

namespace ddp::backends::hierarchical {

/// A collective that runs on a thread of the queue's.
class Operation final : public BackendWork {
 public:
  /// `body` throws where it fails.
  Operation(
      const Member& member,
      OperationInfo info,
      std::function<void()> body);

 private:
  friend class Queue;

  /// Why it failed; empty if it did not.
  std::string run();
  /// Sets the outcome. Returns the future, if someone has it.
  Future settle(const std::string& error);
  bool ends_until(Clock::time_point until) override;

  std::function<void()> body_;
};

/// Runs operations one after another, in the order of the calls, on other
/// threads: while one calls those back that have an operation's future, who may
/// use the queue, another continues. The first operation that fails breaks it:
/// later ones fail with its reason.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  /// `break_off` is called when an operation has failed, or must end.
  explicit Queue(std::function<void()> break_off);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Breaks off what is under way, and waits for the threads, but the calling
  /// one, which may be one of them: it ends when its callback returns.
  void stop();

  void push(const c10::intrusive_ptr<Operation>& operation);
  void break_off(const std::string& reason);
  /// Why it is of no more use; empty while it works.
  std::string first_error() const;
  uint64_t pushed() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Starts a thread where none is about to look for operations.
  void provide_thread();
  void run();
  /// The reason of its failure; empty if it did not fail.
  std::string run(Operation& operation);
  void fail(const std::string& reason);

  const std::function<void()> break_off_;
  mutable std::mutex mutex_;
  std::condition_variable thread_ended_;
  std::deque<c10::intrusive_ptr<Operation>> waiting_;
  detail::FirstError first_error_;
  uint64_t pushed_ = 0;
  bool running_ = false;
  /// How many there are, and how many of them call back.
  int threads_ = 0;
  int calling_back_ = 0;
};

} // namespace ddp::backends::hierarchical
