#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp {

/// How a rank's standard output and error reach ddprun.
enum class OutputMode {
  kLines, // through pipes, whole lines at a time
  kRaw, // the rank inherits ddprun's own
  kPty, // through a terminal of its own, so that programs do not buffer
};

/// Streams of each rank as torchrun numbers them: 0 none, 1 standard output, 2
/// standard error, 3 both.
struct StreamChoice {
  int all = 0;
  /// What ranks of this node (local ranks) have instead of `all`.
  std::map<int, int> ranks;

  int of(int local_rank) const {
    const auto found = ranks.find(local_rank);
    return found == ranks.end() ? all : found->second;
  }
};

/// The two streams of a process, ours and each rank's.
enum class Stream { kOut, kErr };

/// One stream of one rank in one attempt of a job that may be restarted.
struct RankStream {
  int rank = 0;
  int local_rank = 0;
  Stream stream = Stream::kOut;
  int attempt = 0;
};

/// Where the ranks' output goes.
struct OutputOptions {
  OutputMode mode = OutputMode::kLines;
  /// Written before each line: `${rank}`, `${local_rank}`, `${role_name}`,
  /// `${role}`, `${node}`, `${host}` and `${time}` are replaced. Unset: "[rank]
  /// " where there are several ranks, else nothing.
  std::optional<std::string> line_prefix;
  /// Streams that go into files alone, and those that go into files as well.
  StreamChoice redirects;
  StreamChoice tee;
  /// Files are <log_dir>/attempt_N/<local rank>/{stdout,stderr}.log. Empty: no
  /// files (as for torchrun, so does /dev/null).
  std::string log_dir;
  /// Local ranks whose output is shown; empty for all. Files have all.
  std::set<int> shown_ranks;
  /// Lines that contain one of these go also into
  /// <log_dir>/attempt_N/filtered_{stdout,stderr}.log.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
};

/// Whether there is a folder for files.
inline bool writes_files(const OutputOptions& options) {
  return !options.log_dir.empty() && options.log_dir != "/dev/null";
}

/// Whether streams are to go into files.
inline bool wants_files(const OutputOptions& options) {
  const auto any = [](const StreamChoice& choice) {
    return choice.all != 0 || !choice.ranks.empty();
  };
  return any(options.redirects) || any(options.tee);
}

} // namespace ddp
