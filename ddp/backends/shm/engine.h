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
  /// The function that runs after the collective.
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

  /// Does all steps for which the other ranks are ready, until `until` at the
  /// latest. Returns whether the operation has ended. Only one thread at a time
  /// may call this.
  bool advance(Clock::time_point until, std::chrono::nanoseconds spin);
  bool await_others(Clock::time_point until, std::chrono::nanoseconds spin);
  void fail(const std::string& reason);
  void conclude();
  /// Completes the future, if one was requested.
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
/// drives the operations, or sleeps if none are running.
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

  /// Starts an operation, or queues it behind other operations.
  c10::intrusive_ptr<Operation> submit(Task task);

  /// Waits until the operation is complete, or until `until`; returns whether
  /// the operation is complete.
  bool wait(Operation& operation, Clock::time_point until);

  /// Does the steps that do not need to wait.
  void poll();

  /// Lets the engine's thread drive the operations; for callers that will not
  /// wait soon.
  void take_over();

  /// Ends the engine's thread. Threads that wait for operations continue to
  /// drive these operations.
  void stop();

  /// The first reason why the group is broken; empty if the group is usable.
  std::string first_error() const;
  /// Breaks the group for this reason, on all ranks.
  void break_group(const std::string& reason);

  /// The number of started operations.
  uint64_t count() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Drives the first operation until it ends, or until `until`, and starts the
  /// next operations. Releases the lock meanwhile.
  void drive(
      Lock& lock,
      Clock::time_point until,
      std::chrono::nanoseconds spin);
  /// Wakes the thread after the delay, unless the thread wakes earlier.
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
