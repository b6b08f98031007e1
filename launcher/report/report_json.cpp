#include <launcher/report/report.h>

#include <cstring>

#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include <launcher/cli/redaction.h>
#include <launcher/report/report_file.h>

namespace ddp {
namespace {

using nlohmann::json;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

const char* outcome(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "succeeded";
    case StopReason::kSignal:
      return "stopped";
    case StopReason::kHang:
      return "timeout";
    case StopReason::kInfrastructure:
      return "infrastructure";
    case StopReason::kFailure:
    case StopReason::kNotExecuted:
    case StopReason::kOtherNode:
      break;
  }
  return "failed";
}

const char* kind_of_end(const RankState& state) {
  if (state.alive()) {
    return "running";
  }
  if (state.last_phase() != RankState::Phase::kRunning) {
    return "stopped by ddprun";
  }
  return WIFSIGNALED(state.wait_status()) ? "killed" : "exited";
}

json rank_json(const RankEnd& end) {
  const int status = end.state.wait_status();
  json value = {
      {"rank", end.rank},
      {"local_rank", end.local_rank},
      {"pid", end.pid},
      {"end", kind_of_end(end.state)},
      {"exit_code", exit_code_of(status)},
      {"signal", WIFSIGNALED(status) ? json(WTERMSIG(status)) : json()},
      {"duration_s", seconds(end.state.lifetime())},
      {"time_ns", end.time_ns},
      {"step", end.step ? json(*end.step) : json()},
      {"activity", end.activity},
      {"consequence", is_consequence(end)},
      {"stderr", end.last_lines}};
  value["message"] = end.error ? json(end.error->message) : json();
  value["stack"] = end.error ? json(end.error->stack) : json();
  return value;
}

// The rank that is to blame.
json root_json(const JobReport& report) {
  const auto& index = report.blame ? report.blame->index : report.root;
  return index ? json(report.ranks.at(*index).rank) : json();
}

} // namespace

std::string report_json(const JobReport& report) {
  json value = {
      {"schema", 1},
      {"run_id", report.run_id},
      {"outcome", outcome(report.reason)},
      {"exit_code", report.exit_code},
      {"signal", report.signal != 0 ? json(report.signal) : json()},
      {"command", report.command},
      {"restarts", report.restarts},
      {"max_restarts", report.max_restarts},
      {"duration_s", seconds(report.duration)},
      {"detail", report.blame ? report.blame->text : report.detail},
      {"logs", report.folder}};
  value["root"] = root_json(report);
  value["nodes"] = json::array();
  for (const NodeInfo& each : report.nodes) {
    value["nodes"].push_back({{"host", each.host}, {"ranks", each.ranks}});
  }
  value["ranks"] = json::array();
  for (const RankEnd& each : report.ranks) {
    value["ranks"].push_back(rank_json(each));
  }
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

JobReport new_report(const LaunchOptions& options) {
  JobReport report;
  report.run_id = options.run_id;
  report.command = redacted_arguments(options.command);
  report.file = options.report;
  return report;
}

std::string write_report(const JobReport& report) {
  if (report.file.empty()) {
    return "";
  }
  const int error = write_report_file(report.file, report_json(report));
  return error == 0 ? ""
                    : "the report could not be written to " + report.file +
          ": " + std::strerror(error);
}

} // namespace ddp
