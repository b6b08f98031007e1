#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <common/processes/failure.h>
#include <common/processes/supervisor.h>
#include <launcher/cli/options.h>
#include <launcher/rendezvous/log/entry.h>
#include <launcher/report/blame.h>

namespace ddp {

/// The result of a job, for users and programs. After several attempts, the
/// report describes the last attempt.
struct JobReport {
  std::string run_id;
  /// The program's command line, with secrets replaced (see redaction.h).
  std::vector<std::string> command;
  int exit_code = 0;
  StopReason reason = StopReason::kNone;
  int signal = 0; // with kSignal
  /// Additional information, such as why the program was not executed.
  std::string detail;
  int restarts = 0;
  int max_restarts = 0;
  std::chrono::nanoseconds duration{0};
  std::vector<RankEnd> ranks;
  /// The nodes in the order of their ranks; empty in a job of one node.
  std::vector<NodeInfo> nodes;
  /// Index of the rank whose failure ended the job.
  std::optional<size_t> root;
  /// The rank that made `root` fail, if `root` names another rank as the reason
  /// and only the ends and calls of the ranks identify that rank.
  std::optional<Blame> blame;
  /// The folder of logs and errors; empty if there is none.
  std::string folder;
  /// The file for the JSON; empty for none.
  std::string file;
};

/// The initial report of a job with these options.
JobReport new_report(const LaunchOptions& options);

/// The text for the user about a job that did not succeed, without a newline at
/// the end; empty if the job succeeded, or if the reason was already reported.
std::string report_text(const JobReport& report);

/// The report as JSON:
/// {"schema": 1, "run_id", "outcome", "exit_code", "command": [...],
///  "restarts", "duration_s", "root": rank or null, "detail",
///  "ranks": [{"rank", "local_rank", "pid", "end", "exit_code", "signal",
///             "duration_s", "time_ns", "step", "activity", "message", "stack",
///             "consequence", "stderr": [...]}],
///  "signal", "max_restarts", "logs", "nodes": [{"host", "ranks"}]}
/// `outcome` is "succeeded", "failed", "stopped" (by a signal), "timeout" or
/// "infrastructure"; `root` and `detail` are from `blame` if it is set; `end`
/// is "exited", "killed", "stopped by ddprun" or "running".
std::string report_json(const JobReport& report);

/// Writes `report_json` to `report.file` (mode 0600). Readers get the old file
/// or the complete new file, unless the file can only be written in place. Does
/// nothing without a file name. Returns an error's text; empty on success.
std::string write_report(const JobReport& report);

/// Writes the report of a job that ended with an error, which the caller
/// prints.
void write_error_report(
    const LaunchOptions& options,
    int exit_code,
    const std::string& error);

/// Checks that a report can be written to `path` and removes an older report,
/// or clears its file. Throws LaunchError (exit code 2).
void prepare_report(const std::string& path);

} // namespace ddp
