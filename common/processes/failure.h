#pragma once

#include <vector>

#include <sys/types.h>

#include <common/error_file.h>
#include <common/processes/rank_state.h>

namespace ddp {

/// The known facts about the end of a rank in an attempt.
struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  RankState state;
  /// The time at which the launcher noticed the end, in nanoseconds since the
  /// epoch. The times of several ranks are in the order in which the kernel
  /// ended these ranks.
  int64_t time_ns = 0;
  std::optional<ErrorFile> error;
  /// The last lines that the rank wrote to standard error.
  std::vector<std::string> last_lines;
  /// From the rank's heartbeat: the number of completed reductions, and the
  /// current or last activity.
  std::optional<int64_t> step;
  std::string activity;
  /// Whether a collective of the rank failed because of another rank.
  bool failed_by_another = false;
  /// Whether that collective was in a group of some of the job's ranks.
  bool failed_in_part = false;
};

/// The index of the rank that failed first; none if no rank failed. Failures
/// that are consequences of another failure rank after all others. A rank that
/// was being stopped counts if it had already written an error.
std::optional<size_t> root_cause(const std::vector<RankEnd>& ends);

/// Whether the rank exited with code 0 before ddprun stopped it.
bool departed(const RankEnd& end);

/// The time of the failure, in nanoseconds since the epoch: the time of the
/// rank's error, if any, since unwinding and destructors delay the end.
int64_t failure_time(const RankEnd& end);

/// Whether the rank's heartbeat, error or output names another rank's failure
/// as the reason.
bool is_consequence(const RankEnd& end);

/// "signal 9 (Killed)".
std::string describe_signal(int signal);

/// "exited with code 3", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

/// The exit code as in a shell: the process's code, or 128 + the signal's
/// number.
int exit_code_of(int wait_status);

} // namespace ddp
