#pragma once

#include <common/file_descriptor.h>
#include <common/processes/failure.h>
#include <common/processes/supervisor.h>

#include <csignal>
#include <map>

namespace ddp::detail {

/// While it lives, signals that would end this process are noted instead, where
/// the program has not said otherwise; and SIGCHLD is not ignored, which would
/// lose how children end. One at a time: handlers are the process's.
class PassedSignals {
 public:
  PassedSignals();
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;
  /// Puts back what there was, unless someone else has been there since.
  ~PassedSignals();

  /// Readable when one has come.
  int descriptor() const {
    return pipe_.read_end.get();
  }

  /// The number of the next that has come, negative where it came from the
  /// terminal, and so to the children as well; 0 for none.
  int next() const;

 private:
  Pipe pipe_;
  std::map<int, struct sigaction> before_;
};

/// An empty anonymous file for a worker's report: a newline when it has come to
/// its call of `spawn`, and then what `read_error_file` reads; or errno, where
/// it could not be executed. Throws `std::system_error`.
FileDescriptor make_report_file();

/// The processes of one `spawn`, watched together.
class SpawnedWorkers {
 public:
  SpawnedWorkers(int count, std::chrono::milliseconds grace)
      : supervisor_(count, grace, Supervisor::Time()) {}
  SpawnedWorkers(const SpawnedWorkers&) = delete;
  SpawnedWorkers& operator=(const SpawnedWorkers&) = delete;
  /// Kills those that still run.
  ~SpawnedWorkers();

  /// Takes over the process of the next rank, which was started just now.
  void add(pid_t pid, FileDescriptor report);

  /// Returns when all have ended. The first that fails ends the others, and so
  /// does a signal to this process: its number is returned, else 0.
  int wait();

  /// The failure that was the first and no other's consequence: "rank 1 of 3
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
  /// Readable once it has ended; none on kernels before 5.3.
  std::vector<FileDescriptor> processes_;
};

} // namespace ddp::detail
