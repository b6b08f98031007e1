#pragma once

#include <common/file_descriptor.h>
#include <common/processes/failure.h>
#include <common/processes/supervisor.h>

#include <csignal>
#include <map>

namespace ddp::detail {

/// While this object exists, records signals that would otherwise end this
/// process, except signals that the program handles. SIGCHLD is not ignored
/// meanwhile, since the exit statuses of children would otherwise be lost. Only
/// one object may exist, since handlers belong to the process.
class PassedSignals {
 public:
  PassedSignals();
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;
  /// Restores the previous handlers, except handlers that have been changed.
  ~PassedSignals();

  /// Becomes readable when a signal has arrived.
  int descriptor() const {
    return pipe_.read_end.get();
  }

  /// The number of the next signal that has arrived, negative if the terminal
  /// sent it to this process and the children; 0 if no signal has arrived.
  int next() const;

 private:
  Pipe pipe_;
  std::map<int, struct sigaction> before_;
};

/// Returns an empty anonymous file for a worker's report. The worker writes a
/// newline when it reaches its call to `spawn` and, if it fails, the contents
/// that `read_error_file` expects. If the worker cannot be executed, the file
/// contains errno. Throws `std::system_error`.
FileDescriptor make_report_file();

/// The processes of one call to `spawn`.
class SpawnedWorkers {
 public:
  SpawnedWorkers(int count, std::chrono::milliseconds grace)
      : supervisor_(count, grace, Supervisor::Time()) {}
  SpawnedWorkers(const SpawnedWorkers&) = delete;
  SpawnedWorkers& operator=(const SpawnedWorkers&) = delete;
  /// Kills the processes that still run.
  ~SpawnedWorkers();

  /// Adds the newly started process of the next rank.
  void add(pid_t pid, FileDescriptor report);

  /// Returns when all processes have ended. The first failure or a signal to
  /// this process ends the other processes. Returns the number of the signal,
  /// or 0.
  int wait();

  /// The first failure that is not the consequence of another failure: "rank 1
  /// of 3 (pid 42) failed: std::runtime_error: no data"; empty if none failed.
  std::string failure() const;

 private:
  void send(const Supervisor::Signals& signals) const;
  void sleep() const;
  void take_signals();
  void reap();

  PassedSignals signals_;
  Supervisor supervisor_;
  /// The time of the last signal that asked this process to end.
  Supervisor::Time asked_;
  // By rank:
  std::vector<RankEnd> ends_;
  std::vector<FileDescriptor> reports_;
  /// Readable when the process has ended; empty on kernels before 5.3.
  std::vector<FileDescriptor> processes_;
};

} // namespace ddp::detail
