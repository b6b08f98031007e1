#pragma once

#include <ddp/spawn/passed_signals.h>
#include <ddp/spawn/spawned_worker.h>

#include <chrono>
#include <optional>
#include <vector>

namespace ddp::detail {

/// The processes of one `spawn`, watched together.
class SpawnedWorkers {
 public:
  explicit SpawnedWorkers(std::chrono::milliseconds grace) : grace_(grace) {}
  SpawnedWorkers(const SpawnedWorkers&) = delete;
  SpawnedWorkers& operator=(const SpawnedWorkers&) = delete;
  /// Kills those that still run.
  ~SpawnedWorkers();

  /// Takes over a process that was started just now.
  void add(int64_t rank, pid_t pid, FileDescriptor report);

  /// Returns when all have ended. The first that fails ends the others, and so
  /// does a signal to this process: its number is returned, else 0.
  int wait();

  /// The worker whose failure was the first and no other's consequence; null
  /// where none failed.
  const SpawnedWorker* root_cause() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool any_runs() const;
  void send(int signal);
  void sleep() const;
  void take_signals();
  void reap();
  void act();

  std::chrono::milliseconds grace_;
  PassedSignals signals_;
  std::vector<SpawnedWorker> workers_;
  /// The signal that ends this process.
  int signal_ = 0;
  /// When the workers are to be asked to stop, and to be killed.
  std::optional<Clock::time_point> stop_at_;
  std::optional<Clock::time_point> kill_at_;
};

} // namespace ddp::detail
