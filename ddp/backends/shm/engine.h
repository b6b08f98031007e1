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

/// What an operation does.
struct Task : OperationInfo {
  std::unique_ptr<Collective> collective;
  /// What is left to do when the collective is done.
  std::function<void()> finish;
  /// Whether the caller said that it waits at once.
  bool waited_for = false;
};

/// A collective that the ranks are at.
class Operation final : public BackendWork {
 public:
  Operation(std::shared_ptr<Engine> engine, Task task, uint64_t number);

  bool isCompleted() override;
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Engine;

  /// Goes on as far as the others let it, for at most until then; whether it
  /// has ended. One thread at a time.
  bool advance(Clock::time_point until, std::chrono::nanoseconds spin);
  bool await_others(Clock::time_point until, std::chrono::nanoseconds spin);
  void fail(const std::string& reason);
  void conclude();
  /// Lets those know that have its future.
  void settle();
  bool ends_until(Clock::time_point until) override;

  const std::shared_ptr<Engine> engine_;
  Task task_;
  bool others_awaited_ = false;
  std::atomic<bool> done_{false};
};

/// Drives one group's operations, in the order of the calls.
///
/// A thread that waits for one drives them itself, which saves two changes of
/// thread per operation. What no one waits for is driven by a thread of the
/// engine's, which sleeps where there is nothing to do.
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

  /// Starts an operation, or lines it up behind others.
  c10::intrusive_ptr<Operation> submit(Task task);

  /// Waits until it is complete or `until` has come; whether it is complete.
  bool wait(Operation& operation, Clock::time_point until);

  /// Does what can be done without waiting.
  void poll();

  /// Says that the caller is not about to wait.
  void take_over();

  /// Ends the engine's thread. Operations end by those that wait for them.
  void stop();

  /// Why the group is of no more use: the first reason, empty while it works.
  std::string first_error() const;
  /// Sets it, and tells the other ranks.
  void break_group(const std::string& reason);

  /// How many operations were started.
  uint64_t count() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Drives the first operation until it ends or `until`, and starts those
  /// behind it. Unlocks meanwhile.
  void drive(
      Lock& lock,
      Clock::time_point until,
      std::chrono::nanoseconds spin);
  /// Wakes the thread after the delay, if it does not wake before.
  void wake(std::chrono::microseconds delay);
  void run();

  const std::unique_ptr<Context> context_;
  const std::chrono::nanoseconds spin_;

  mutable std::mutex mutex_;
  /// An operation has ended, or no one drives.
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
