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

/// How a job went, for people and for programs. Of several attempts it shows
/// the last.
struct JobReport {
  std::string run_id;
  /// The program's command line; words that look secret are replaced.
  std::vector<std::string> command;
  int exit_code = 0;
  StopReason reason = StopReason::kNone;
  int signal = 0; // with kSignal
  /// What there is to say besides, such as why the program was not executed.
  std::string detail;
  int restarts = 0;
  int max_restarts = 0;
  std::chrono::nanoseconds duration{0};
  std::vector<RankEnd> ranks;
  /// In the order of their ranks; empty in a job of one.
  std::vector<NodeInfo> nodes;
  /// Index of the rank whose failure ended the job.
  std::optional<size_t> root;
  /// Who made that rank fail, where it says that another one did and only the
  /// others' ends and calls tell which.
  std::optional<Blame> blame;
  /// Where logs and errors are kept; empty if nowhere.
  std::string folder;
  /// Where the JSON is written; empty for nowhere.
  std::string file;
};

/// One of a job that these options ask for, in which nothing happened yet.
JobReport new_report(const LaunchOptions& options);

/// What a person needs to see of a job that did not succeed: lines without a
/// newline at the end; empty if all went well, or was said already.
std::string report_text(const JobReport& report);

/// The report as JSON:
/// {"schema": 1, "run_id", "outcome", "exit_code", "command": [...],
///  "restarts", "duration_s", "root": rank or null, "detail",
///  "ranks": [{"rank", "local_rank", "pid", "end", "exit_code", "signal",
///             "duration_s", "time_ns", "step", "activity", "message",
///             "stack", "consequence", "stderr": [...]}]}
/// `outcome` is "succeeded", "failed", "stopped" (by a signal), "timeout" or
/// "infrastructure"; `root` and `detail` are the blame's where there is one;
/// `end` is "exited", "killed" or "stopped by ddprun".
std::string report_json(const JobReport& report);

/// Writes `report_json` to `report.file` so that readers see the old file or
/// the whole new one, for no one else's eyes (0600); nothing if there is no
/// such file. An error text, or empty.
std::string write_report(const JobReport& report);

/// Checks that a report can be written to `path` and removes an older one.
/// Throws LaunchError (exit code 2).
void prepare_report(const std::string& path);

} // namespace ddp
