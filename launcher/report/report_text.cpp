#include <launcher/report/report.h>

#include <algorithm>
#include <map>

#include <common/text.h>
#include <launcher/output/shared_errors.h>

namespace ddp {
namespace {

constexpr size_t kReasonLines = 12;
constexpr size_t kStackFrames = 12;
constexpr size_t kErrorLines = 5;
constexpr size_t kHangFrames = 6;

// Replaces characters that would move a terminal's cursor or change its colors.
std::string without_controls(std::string line) {
  std::replace_if(
      line.begin(),
      line.end(),
      [](char c) {
        return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 127;
      },
      '?');
  return line;
}

// "  title: first line" and the others below it; states how many were left out,
// at the end or, with `keep_last`, at the beginning.
std::string section(
    const std::string& title,
    std::vector<std::string> lines,
    size_t most,
    bool keep_last = false) {
  if (lines.size() > most) {
    const auto left_out = static_cast<ptrdiff_t>(lines.size() - most);
    const auto first = keep_last ? lines.begin() : lines.end() - left_out;
    lines.insert(
        lines.erase(first, first + left_out),
        "(" + std::to_string(left_out) + " more)");
  }
  std::string text;
  std::string start = "\n  " + title + ": ";
  for (const std::string& line : lines) {
    text += start + without_controls(line);
    start = "\n" + std::string(title.size() + 4, ' ');
  }
  return text;
}

std::string section(const std::string& title, const std::string& line) {
  return line.empty() ? "" : section(title, {line}, 1);
}

// Python's stacks end with the frame that failed.
std::string stack_section(
    const std::string& title,
    const ErrorFile& error,
    size_t most) {
  const bool is_python =
      error.stack.find("Traceback (most recent call last)") !=
      std::string::npos;
  return section(title, split_lines(error.stack), most, is_python);
}

std::string position(const RankEnd& end) {
  const std::string step = end.step && *end.step > 0
      ? "after step " + std::to_string(*end.step)
      : "";
  const bool is_over = end.activity.rfind("after ", 0) == 0;
  std::string text = step.empty() ? "" : ", " + step;
  if (!end.activity.empty() && end.activity != step) {
    text += (is_over ? ", " : ", in ") + end.activity;
  }
  return text;
}

std::string name(const RankEnd& end) {
  return "rank " + std::to_string(end.rank) + " (pid " +
      std::to_string(end.pid) + ")";
}

// The rank's own reason; empty if it gives none.
std::string reason_of(const RankEnd& end) {
  return end.error ? end.error->message : SharedErrors::last_of(end.last_lines);
}

// Whether abort() ended the rank, whose output then has the reason, such as a
// failed assertion.
bool was_aborted(const RankEnd& end) {
  return end.error && end.error->message == "Signal 6 (Aborted)";
}

std::vector<std::string> last_lines(const RankEnd& end, size_t most) {
  const auto& all = end.last_lines;
  const auto shown = static_cast<ptrdiff_t>(std::min(most, all.size()));
  return {all.end() - shown, all.end()};
}

bool have_one_reason(const RankEnd& one, const RankEnd& other) {
  const std::string reason = without_speaker(reason_of(one));
  return !reason.empty() && reason == without_speaker(reason_of(other)) &&
      (!was_aborted(one) || last_lines(one, 1) == last_lines(other, 1));
}

// The end of a rank other than the root.
std::string fate_of(const RankEnd& end, const RankEnd& root) {
  if (have_one_reason(end, root)) {
    return " failed for the same reason";
  }
  switch (end.state.last_phase()) {
    case RankState::Phase::kKilled:
      return " did not stop and had to be killed";
    case RankState::Phase::kStopping:
      return " was stopped";
    default:
      return end.state.failed() ? " failed after it" : " had ended with code 0";
  }
}

// The ends of the other ranks, by kind of end.
std::string others(const JobReport& report) {
  std::map<std::string, std::vector<int>> ranks;
  for (size_t i = 0; i < report.ranks.size(); ++i) {
    const RankEnd& end = report.ranks[i];
    if (i != report.root && !end.state.alive()) {
      ranks[fate_of(end, report.ranks.at(*report.root))].push_back(end.rank);
    }
  }
  std::string text;
  for (const std::string fate :
       {" failed for the same reason",
        " had ended with code 0",
        " failed after it",
        " was stopped",
        " did not stop and had to be killed"}) {
    const auto& those = ranks[fate];
    if (!those.empty()) {
      text += (text.empty() ? "" : "; ") + name_ranks(those) +
          (those.size() > 1 ? replaced(fate, " was ", " were ") : fate);
    }
  }
  return text;
}

std::string explain(const RankEnd& end) {
  std::string text =
      section("reason", split_lines(reason_of(end)), kReasonLines);
  if (end.error) {
    text += stack_section("stack", *end.error, kStackFrames);
  }
  if (text.empty() || was_aborted(end)) {
    text += section("stderr", last_lines(end, kErrorLines), kErrorLines);
  }
  return text;
}

std::string failure_text(const JobReport& report) {
  const RankEnd& root = report.ranks.at(*report.root);
  const std::string first = name(root) + " " +
      describe_end(root.state.wait_status()) + " after " +
      describe_time(root.state.lifetime()) + position(root);
  std::string text = first;
  if (report.blame) {
    const bool is_victim =
        report.blame->index.value_or(*report.root) != *report.root;
    text = report.blame->text +
        section(is_victim ? "first victim" : "first failure", first);
  }
  text += explain(root) + section("others", others(report));
  if (report.max_restarts > 0) {
    text += section(
        "restarts",
        std::to_string(report.restarts) + " of " +
            std::to_string(report.max_restarts) + " were used");
  }
  return text;
}

// The position of every rank.
std::string timeout_text(const JobReport& report) {
  std::string text = report.detail + "; all ranks were ended";
  for (const RankEnd& end : report.ranks) {
    std::string where = position(end);
    if (where.empty()) {
      where = end.step ? ", before its first step"
                       : ", has not called init_process_group";
    }
    text += "\n  " + name(end) + ":" + where.substr(1);
    if (end.error) {
      text += stack_section("  stack", *end.error, kHangFrames);
    }
  }
  return text;
}

} // namespace

std::string report_text(const JobReport& report) {
  std::string text;
  switch (report.reason) {
    case StopReason::kNone:
    case StopReason::kSignal: // reported when it arrived
      return "";
    case StopReason::kFailure:
      text = report.root ? failure_text(report) : "a rank failed";
      break;
    case StopReason::kHang:
      text = timeout_text(report);
      break;
    case StopReason::kNotExecuted:
    case StopReason::kInfrastructure:
    case StopReason::kOtherNode:
      text = report.detail;
      break;
  }
  return text + section("logs", report.folder) + section("report", report.file);
}

} // namespace ddp
