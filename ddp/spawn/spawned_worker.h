#pragma once

#include <common/error_file.h>
#include <common/file_descriptor.h>

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::detail {

/// A process that `spawn` has started, as the first process sees it.
struct SpawnedWorker {
  int64_t rank = 0;
  pid_t pid = -1;
  /// Readable once it has ended; none on kernels before 5.3.
  FileDescriptor process;
  /// An anonymous file, in which it writes a newline when it has come to its
  /// call of `spawn`, and then what `read_error_file` reads.
  FileDescriptor report;
  bool ended = false;
  /// As from `waitpid`; none where somebody else has taken it.
  std::optional<int> status;
  /// When that was noticed, in nanoseconds since the epoch.
  int64_t end_ns = 0;
  /// Whether it was told to end before that.
  bool stopped = false;
  /// Why it failed, if it has said so.
  std::optional<ErrorFile> error;

  /// Looks whether it has ended, without waiting.
  void reap();

  /// Whether it ended, and not well. To have been stopped is no failure, unless
  /// it had one before.
  bool failed() const;

  /// Whether another's failure is the reason, by what it says itself.
  bool is_consequence() const;

  /// When it failed.
  int64_t failure_ns() const;

  /// How it ended: "failed: std::runtime_error: no data", "was killed by signal
  /// 9 (Killed)".
  std::string describe_end() const;

 private:
  bool came_to_its_call() const;
};

/// An empty anonymous file for a worker's report. Throws `std::system_error`.
FileDescriptor make_report_file();

} // namespace ddp::detail
