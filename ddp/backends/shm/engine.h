#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/common/timer.h>
#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/context.h>

#include <condition_variable>
#include <deque>
#include <thread>

namespace ddp::backends::shm {

class Engine;

/// An operation to submit.
struct Task : OperationInfo {
  std::unique_ptr<Collective> collective;
  /// The work after the collective.
  std::function<void()> finish;
  /// Whether the caller announced that it waits immediately.
  bool waited_for = false;
};

/// A collective in progress.
class Operation final : public BackendWork {
 public:
  Operation(std::shared_ptr<Engine> engine, Task task, uint64_t number);

  bool isCompleted() override;
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Engine;

  /// Does all steps for which the other ranks are ready, until at most `until`.
  /// Returns whether the operation has ended. For one thread at a time.
  bool advance(Clock::time_point until, std::chrono::nanoseconds spin);
  bool await_others(Clock::time_point until, std::chrono::nanoseconds spin);
  void fail(const std::string& reason);
  void conclude();
  /// Completes the future, if it was requested.
  void complete_future();
  bool ends_until(Clock::time_point until) override;

  const std::shared_ptr<Engine> engine_;
  Task task_;
  bool others_awaited_ = false;
  std::atomic<bool> done_{false};
};

/// Drives one group's operations, in the order of the calls.
///
/// A thread that waits for an operation drives all operations, which saves two
/// thread switches per operation. If no thread waits, the engine's thread
/// drives them, and sleeps if there are none.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using Clock = Context::Clock;

  explicit Engine(std::unique_ptr<Context> context);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  Context& context() {
    return *context_;
  }

  /// Starts an operation, or queues it behind others.
  c10::intrusive_ptr<Operation> submit(Task task);

  /// Waits until the operation is complete or `until`; returns whether it is
  /// complete.
  bool wait(Operation& operation, Clock::time_point until);

  /// Does the steps that need no waiting.
  void poll();

  /// Lets the engine's thread drive the operations; for callers that do not
  /// wait soon.
  void take_over();

  /// Ends the engine's thread. Threads that wait for operations still drive
  /// them.
  void stop();

  /// The first reason for which the group is broken; empty if it is not.
  std::string first_error() const;
  /// Breaks the group for this reason, on this rank and on the others.
  void break_group(const std::string& reason);

  /// The number of started operations.
  uint64_t count() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Drives the first operation until it ends or `until`, and starts the next
  /// ones. Releases the lock meanwhile.
  void drive(
      Lock& lock,
      Clock::time_point until,
      std::chrono::nanoseconds spin);
  /// Wakes the thread after the delay, unless it wakes earlier.
  void wake(std::chrono::microseconds delay);
  void run();

  const std::unique_ptr<Context> context_;
  const std::chrono::nanoseconds spin_;

  mutable std::mutex mutex_;
  /// Notified when an operation has ended, or when no thread drives operations.
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<Operation>> queue_;
  uint64_t count_ = 0;
  detail::FirstError first_error_;
  int waiting_ = 0;
  bool driving_ = false;

  Timer timer_;
  std::thread thread_;
  /// Whether the thread will wake soon.
  bool alarmed_ = false;
  bool stopping_ = false;
};

} // namespace ddp::backends::shm
