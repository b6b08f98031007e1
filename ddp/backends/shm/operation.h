#pragma once

#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/team.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

} // namespace ddp::backends::shm
