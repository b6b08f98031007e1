#pragma once

#include <ddp/backends/common/timer.h>
#include <ddp/backends/mpi/operation.h>
#include <ddp/backends/mpi/runtime.h>

#include <condition_variable>
#include <deque>

namespace ddp::backends::mpi {

/// Drives this process's operations; one per process, as MPI is.
///
/// Operations on one communicator start in the order in which they were
/// submitted. A thread that waits for one drives them all itself, which saves
/// two changes of thread per operation; while no one waits, a thread of the
/// engine's does, which sleeps where there is nothing to do. Where only the
/// program's threads may call MPI there is no such thread.
class Engine {
 public:
  /// Initialises MPI at the first call.
  static Engine& get();

  Threading threading() const {
    return threading_;
  }

  void submit(const c10::intrusive_ptr<Operation>& operation);

  /// Waits until it is complete or `until` has come; whether it is complete.
  bool wait(Operation& operation, Operation::Clock::time_point until);

  /// Says that the caller is not about to wait.
  void take_over();

  /// Drives the operations once, where no thread does.
  void poll();

  /// To be held while MPI is called outside of operations.
  std::unique_lock<std::mutex> exclusive();

  /// Ends the thread; whether MPI is at rest. Operations in flight get a few
  /// seconds to end.
  bool stop();

 private:
  using OperationPtr = c10::intrusive_ptr<Operation>;
  using Clock = Operation::Clock;

  Engine();
  void run();
  /// Returns when the thread has something to do; `lock` is on `mutex_`.
  void sleep(std::unique_lock<std::mutex>& lock);
  /// Wakes the thread if it sleeps; to be called with `mutex_` locked.
  void wake(std::chrono::microseconds delay);

  // To be called with `calls_` locked. They return whether something changed.
  bool advance(Clock::time_point now);
  bool start_waiting();
  bool test_started(Clock::time_point now);
  /// Whether it has left the queue.
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
  /// Failed ones, whose memory MPI may still use: it cannot cancel them.
  std::vector<OperationPtr> abandoned_;

  /// Held for moments; guards what follows.
  std::mutex mutex_;
  std::condition_variable rest_;
  Timer timer_;
  std::vector<OperationPtr> incoming_;
  std::vector<OperationPtr> arrived_;
  size_t outstanding_ = 0;
  int helpers_ = 0;
  bool asleep_ = false;
  /// Whether it will wake.
  bool alarmed_ = false;
  bool unfinished_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
};

} // namespace ddp::backends::mpi
