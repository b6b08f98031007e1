#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/mpi/requests.h>
#include <ddp/backends/mpi/staging/staging.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::backends::mpi {

/// What the operations on one communicator share. It lives as long as any.
struct Channel {
  explicit Channel(std::unique_ptr<Comm> its_comm);

  const std::unique_ptr<Comm> comm;
  const int rank;
  const int size;
  /// Whether an operation has steps left that later ones must not overtake.
  std::atomic<bool> occupied{false};
  /// Numbers the operations.
  std::atomic<uint64_t> launched{0};
  detail::FirstError first_error;
};

/// What an operation does.
struct Task : OperationInfo {
  Staging staging;
  int64_t largest = 0;
  /// Make MPI's calls. They and `finish` hold the tensors alive.
  std::vector<std::function<void(Requests&)>> steps;
  /// What follows when MPI is done with these. Operations behind this one wait
  /// for that. `finish` must hold its tensors.
  std::function<void(Requests&)> second_step;
  /// What is left to do when MPI is done.
  std::vector<std::function<void()>> finish;
};

/// An operation that MPI works at.
class Operation final : public BackendWork {
 public:
  Operation(std::shared_ptr<Channel> channel, Task task);

  bool isCompleted() override;
  void synchronize() override;
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Engine;
  enum class State { kPending, kDone, kFailed };

  // For the engine, which calls them one at a time.
  bool ready();
  /// False if it failed.
  bool start();
  State test();
  void time_out();
  /// Fails it and breaks the channel.
  void fail(const std::string& reason);

  // For any thread.
  /// Does what is left after MPI, once.
  void complete();
  bool ends_until(Clock::time_point until) override;
  Future make_future() const override;
  void complete_future(c10::ivalue::Future& future) const override;

  const std::shared_ptr<Channel> channel_;
  Task task_;
  std::optional<Requests> requests_;
  int source_ = -1;
  bool abandoned_ = false;
  /// MPI is done with it, or it failed.
  std::atomic<bool> arrived_{false};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> waiters_{0};
};

} // namespace ddp::backends::mpi
