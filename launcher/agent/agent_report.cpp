// The agent's messages about the ranks.
#include <launcher/agent/agent.h>

#include <common/scheduler/launch_error.h>
#include <common/text.h>

namespace ddp {

std::vector<int> Agent::ranks_of(std::vector<int> local_ranks) const {
  for (int& each : local_ranks) {
    each += job_.environment.first_rank;
  }
  return local_ranks;
}

void Agent::say_what_is_awaited(Time now) {
  next_warning_.reset();
  const std::vector<int> alive = supervisor_->alive();
  if (alive.empty()) {
    return;
  }
  const std::string ranks = name_ranks(ranks_of(alive));
  const auto deadline = supervisor_->deadline();
  if (deadline && now >= *deadline) {
    return; // they are killed now
  }
  if (!deadline) {
    say(ranks +
        " cannot be killed: blocked in the kernel (by a "
        "driver, or by a file system that does not answer)");
  } else {
    std::string text = "waiting for " + ranks + " to stop, for " +
        describe_time(*deadline - now) + " at most";
    const auto failed = root_cause(ends_);
    if (failed && supervisor_->reason() == StopReason::kFailure) {
      const RankEnd& end = ends_[*failed];
      text += ": rank " + std::to_string(end.rank) + " " +
          describe_end(end.state.wait_status());
    } else if (supervisor_->reason() == StopReason::kOtherNode) {
      text += ": " + first_line(detail_);
    }
    say(text);
  }
}

void Agent::say_who_waits(
    const std::map<std::string, std::vector<int>>& callers,
    const std::vector<int>& gone) {
  std::string text;
  for (const auto& [call, ranks] : callers) {
    text += text.empty() ? name_ranks(ranks) +
            (ranks.size() > 1 ? " have been in " : " has been in ") + call
                         : ", " + name_ranks(ranks) + " in " + call;
  }
  say(text + " for more than " + describe_time(kLongWait) + "; " +
      name_ranks(gone) + (gone.size() > 1 ? " have" : " has") +
      " ended with code 0");
}

JobReport Agent::make_report() {
  JobReport report = new_report(job_.options);
  if (!supervisor_) { // no ranks yet
    return report;
  }
  report.reason = supervisor_->reason();
  report.signal = supervisor_->signal();
  report.detail = detail_;
  report.restarts = job_.environment.restarts;
  report.max_restarts = job_.options.max_restarts;
  report.duration = Clock::now() - started_;
  report.ranks = ends_;
  if (report.reason == StopReason::kFailure) {
    report.root = root_cause(report.ranks);
    report.blame = blame_departed(report.ranks);
    if (!report.blame &&
        !job_.options.nodes.several()) { // other nodes have more ranks
      report.blame = blame_caller(report.ranks);
    }
  }
  report.folder = job_.private_folder.empty() ? job_.folder : "";
  return report;
}

// The report of the whole job contains the rest.
JobReport Agent::make_attempt_report() {
  JobReport report = make_report();
  report.max_restarts = 0;
  report.file.clear();
  return report;
}

// The exit code of the first failure or, if that rank was stopped before it
// could end, of the first failed rank that did end.
int Agent::failure_code(const JobReport& report) const {
  if (report.root && report.ranks[*report.root].state.failed()) {
    return exit_code_of(report.ranks[*report.root].state.wait_status());
  }
  for (int each : supervisor_->ended()) {
    const RankState& state = supervisor_->ranks()[static_cast<size_t>(each)];
    if (state.failed()) {
      return exit_code_of(state.wait_status());
    }
  }
  return kExitInternal;
}

int Agent::exit_code(const JobReport& report) const {
  switch (report.reason) {
    case StopReason::kFailure:
      return failure_code(report);
    case StopReason::kNotExecuted:
      return exec_error_;
    case StopReason::kInfrastructure:
      return kExitInfrastructure;
    case StopReason::kHang:
      return kExitTimeout;
    case StopReason::kNone:
    case StopReason::kSignal:
    case StopReason::kOtherNode: // the job's own code is in its log
      break;
  }
  return report.signal != 0                ? kExitSignalBase + report.signal
      : report.reason == StopReason::kNone ? 0
                                           : kExitInfrastructure;
}

} // namespace ddp
