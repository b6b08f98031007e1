#pragma once

#include <vector>

#include <sys/types.h>

#include <common/error_file.h>
#include <common/processes/rank_state.h>

namespace ddp {

/// All that is known of how a rank of an attempt ended.
struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  RankState state;
  /// When its launcher learnt of it, in nanoseconds since the epoch; of several
  /// ranks in the order in which the kernel ended them.
  int64_t time_ns = 0;
  std::optional<ErrorFile> error;
  /// What it wrote to standard error last.
  std::vector<std::string> last_lines;
  /// From its heartbeat: completed reductions, and what it does or did last.
  std::optional<int64_t> step;
  std::string activity;
  /// Whether a collective of its failed because of another rank.
  bool failed_by_another = false;
};

/// The index of the rank whose failure was the first and not another's
/// consequence; none if no rank failed. A rank that was being stopped counts if
/// it had written an error before that.
std::optional<size_t> root_cause(const std::vector<RankEnd>& ends);

/// Whether it ended with code 0 before it was asked to end.
bool departed(const RankEnd& end);

/// When it failed, in nanoseconds since the epoch: the error comes before the
/// end, which unwinding and destructors delay.
int64_t failure_time(const RankEnd& end);

/// Whether another rank's failure was the reason of this one's, by what the
/// rank says itself.
bool is_consequence(const RankEnd& end);

/// "signal 9 (Killed)".
std::string describe_signal(int signal);

/// "exited with code 3", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

/// The shell's: the exit code, or 128 + the signal's number.
int exit_code_of(int wait_status);

} // namespace ddp
