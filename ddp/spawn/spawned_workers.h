#pragma once

#include <common/file_descriptor.h>
#include <common/processes/failure.h>
#include <common/processes/supervisor.h>

#include <csignal>
#include <map>

namespace ddp::detail {

/// While the object lives, signals that would end this process are recorded
/// instead, unless the program handles them. SIGCHLD is not ignored meanwhile,
/// since the exit statuses of children would otherwise be lost. Only one object
/// may exist, since handlers belong to the process.
class PassedSignals {
 public:
  PassedSignals();
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;
  /// Restores the previous handlers, unless they have been changed.
  ~PassedSignals();

  /// Becomes readable when a signal has arrived.
  int descriptor() const {
    return pipe_.read_end.get();
  }

  /// The number of the next signal that has arrived, negative if it came from
  /// the terminal, which also sends it to the children; 0 for none.
  int next() const;

 private:
  Pipe pipe_;
  std::map<int, struct sigaction> before_;
};

/// An empty anonymous file for a worker's report: a newline when it has reached
/// its call of `spawn`, and then the contents for `read_error_file`; or errno,
/// if it could not be executed. Throws `std::system_error`.
FileDescriptor make_report_file();

/// The processes of one `spawn`.
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

  /// Returns when all processes have ended. The first failure ends the other
  /// processes, as does a signal to this process. Returns the number of that
  /// signal, otherwise 0.
  int wait();

  /// The first failure that is not the consequence of another: "rank 1 of 3
  /// (pid 42) failed: std::runtime_error: no data"; empty if none failed.
  std::string failure() const;

 private:
  void send(const Supervisor::Signals& signals) const;
  void sleep() const;
  void take_signals();
  void reap();

  PassedSignals signals_;
  Supervisor supervisor_;
  // By rank:
  std::vector<RankEnd> ends_;
  std::vector<FileDescriptor> reports_;
  /// Readable when the process has ended; empty on kernels before 5.3.
  std::vector<FileDescriptor> processes_;
};

} // namespace ddp::detail
