#pragma once

#include <ddp/backends/common/timer.h>
#include <ddp/backends/mpi/operation.h>
#include <ddp/backends/mpi/runtime.h>

#include <condition_variable>
#include <deque>

namespace ddp::backends::mpi {

/// Drives this process's operations. Like MPI, the engine exists once per
/// process.
///
/// Operations on one communicator start in the order in which they were
/// submitted. A thread that waits for an operation drives all operations, which
/// saves two thread switches per operation. While no thread waits, the engine's
/// thread drives the operations, or sleeps if none are running. The engine has
/// no thread if only the program's threads may call MPI.
class Engine {
 public:
  /// Initializes MPI at the first call.
  static Engine& get();

  Threading threading() const {
    return threading_;
  }

  void submit(const c10::intrusive_ptr<Operation>& operation);

  /// Waits until the operation is complete, or until `until`; returns whether
  /// the operation is complete.
  bool wait(Operation& operation, Operation::Clock::time_point until);

  /// Lets the engine's thread drive the operations; for callers that will not
  /// wait soon.
  void take_over();

  /// Drives the operations once, if the engine has no thread.
  void poll();

  /// Calls `start`, whose operations need not be complete when it returns.
  /// Calls can be nested.
  void defer(const std::function<void()>& start);

  /// Whether an operation may be pending when the call that starts it returns:
  /// if the engine has a thread, or within `defer`.
  bool may_be_pending() const;

  /// Polls until `done` returns true, or until `until`.
  void drive(
      Operation::Clock::time_point until,
      const std::function<bool()>& done);

  /// Returns the lock that code must hold while it calls MPI outside
  /// operations.
  std::unique_lock<std::mutex> exclusive();

  /// Ends the thread, and returns whether MPI is idle. Running operations get a
  /// few seconds to end.
  bool stop();

 private:
  using OperationPtr = c10::intrusive_ptr<Operation>;
  using Clock = Operation::Clock;

  Engine();
  /// Returns when no operation runs, one has failed, or a few seconds have
  /// passed.
  void settle();
  /// MPI_Finalize calls this first. Operations that do not end in `settle`, and
  /// later ones, fail.
  void finalize();
  void run();
  /// Returns when the thread has an operation to drive, or must stop; `lock`
  /// must hold `mutex_`.
  void sleep(std::unique_lock<std::mutex>& lock);
  /// Wakes the thread if the thread sleeps. Call this with `mutex_` locked.
  void wake(std::chrono::microseconds delay);

  // Call these functions with `calls_` locked. The first three return whether
  // any state changed.
  bool advance(Clock::time_point now);
  bool start_waiting();
  bool test_started(Clock::time_point now);
  /// Returns whether the operation has left the queue.
  bool leaves_queue(const OperationPtr& operation, bool& blocked);
  void arrive(const OperationPtr& operation);
  void abandon(const OperationPtr& operation);

  void complete_arrived();
  void leave(Operation& operation);

  const Threading threading_;

  /// Held while MPI is called.
  std::mutex calls_;
  std::deque<OperationPtr> waiting_;
  std::vector<OperationPtr> started_;
  /// Failed operations: MPI cannot cancel these operations, and may still use
  /// their memory.
  std::vector<OperationPtr> abandoned_;
  bool finalized_ = false;

  /// Held briefly; guards the members below.
  std::mutex mutex_;
  std::condition_variable rest_;
  Timer timer_;
  std::vector<OperationPtr> incoming_;
  std::vector<OperationPtr> arrived_;
  size_t outstanding_ = 0;
  int helpers_ = 0;
  bool asleep_ = false;
  /// Whether the timer is set.
  bool alarmed_ = false;
  bool unfinished_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
};

} // namespace ddp::backends::mpi
