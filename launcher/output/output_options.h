#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp {

/// The way in which a rank's standard output and error reach ddprun.
enum class OutputMode {
  kLines, // through pipes, whole lines at a time
  kRaw, // the rank inherits ddprun's streams
  kPty, // through a pseudo-terminal, so that programs do not buffer
};

/// Streams of each rank, numbered as in torchrun: 0 none, 1 standard output, 2
/// standard error, 3 both.
struct StreamChoice {
  int all = 0;
  /// Local ranks with a choice other than `all`.
  std::map<int, int> ranks;

  int of(int local_rank) const {
    const auto found = ranks.find(local_rank);
    return found == ranks.end() ? all : found->second;
  }
};

/// The two output streams of a process: ddprun or a rank.
enum class Stream { kOut, kErr };

/// One stream of one rank in one attempt of a job that may be restarted.
struct RankStream {
  int rank = 0;
  int local_rank = 0;
  Stream stream = Stream::kOut;
  int attempt = 0;
};

/// The destination of the ranks' output.
struct OutputOptions {
  OutputMode mode = OutputMode::kLines;
  /// Written before each line: `${rank}`, `${local_rank}`, `${role_name}`,
  /// `${role}`, `${node}`, `${host}` and `${time}` are replaced. If unset, the
  /// prefix is "[rank] " if the job has several ranks, otherwise nothing.
  std::optional<std::string> line_prefix;
  /// Streams that go only into files (`redirects`), or also into files (`tee`).
  StreamChoice redirects;
  StreamChoice tee;
  /// Files are <log_dir>/attempt_N/<local rank>/{stdout,stderr}.log. If empty,
  /// or /dev/null as in torchrun, ddprun writes no files.
  std::string log_dir;
  /// Local ranks whose output is shown; empty for all. Files contain the output
  /// of all ranks.
  std::set<int> shown_ranks;
  /// Lines that contain one of these texts also go into
  /// <log_dir>/attempt_N/filtered_{stdout,stderr}.log.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
};

/// Whether log files have a folder.
inline bool writes_files(const OutputOptions& options) {
  return !options.log_dir.empty() && options.log_dir != "/dev/null";
}

/// Whether any stream goes into files.
inline bool wants_files(const OutputOptions& options) {
  const auto any = [](const StreamChoice& choice) {
    return choice.all != 0 || !choice.ranks.empty();
  };
  return any(options.redirects) || any(options.tee);
}

} // namespace ddp
