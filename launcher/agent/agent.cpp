#include <launcher/agent/agent.h>

#include <exception>

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/private_folder.h>
#include <launcher/processes.h>

namespace ddp {
namespace {

// Several pipes and a pidfd for each rank go beyond the usual limit of 1024.
// Returns the limit that was, for the ranks.
rlimit raise_descriptor_limit() {
  rlimit limit{};
  check_call(getrlimit(RLIMIT_NOFILE, &limit), "cannot read RLIMIT_NOFILE");
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

} // namespace

Agent::Agent(Job& job, FileDescriptor lifeline)
    : job_(job),
      descriptor_limit_(raise_descriptor_limit()),
      lifeline_(std::move(lifeline)),
      signals_(open_signal_descriptor()),
      events_(check_call(epoll_create1(EPOLL_CLOEXEC), "cannot use epoll")),
      output_(
          job.options.output,
          job.environment,
          STDOUT_FILENO,
          STDERR_FILENO),
      rendezvous_(job) {}

int Agent::run() {
  watch(lifeline_.get());
  watch(signals_.get());
  watch(output_.done_fd());
  watch(rendezvous_.fd());
  for (;;) {
    const Rendezvous::Command command = await_command();
    if (command.kind == Rendezvous::Command::Kind::kExit) {
      end_paused_ranks();
      return conclude(command);
    }
    if (job_.start_error) {
      decline();
    } else {
      run_planned(command.index);
    }
  }
}

void Agent::start_attempt(Listener listener) {
  const Time now = Clock::now();
  told_ = false;
  ends_.assign(static_cast<size_t>(job_.options.nproc_per_node), RankEnd());
  detail_.clear();
  progress_ = ProgressWatch();
  told_waits_ = false;
  attempt_.reset(); // or the new ranks would hold its descriptors
  attempt_ = std::make_unique<Attempt>(
      job_, number_, std::move(listener), descriptor_limit_, output_);
  supervisor_.emplace(job_.options.nproc_per_node, job_.options.grace, now);
  watch(attempt_->exec_errors.get());
  for (const Attempt::Rank& each : attempt_->ranks) {
    if (each.process) {
      watch(each.process.get());
    }
  }
  if (job_.options.hang_timeout.count() > 0) {
    next_tick_ = now + kTickTime;
  }
}

void Agent::end_attempt() {
  next_tick_.reset();
  next_notice_.reset();
  end_all_but_helpers(); // the store, and what ranks left behind
  output_.drain();
  await_output();
  output_deadline_.reset();
  for (size_t i = 0; i < ends_.size(); ++i) {
    ends_[i].error =
        read_error_file(attempt_->ranks[i].error_file, job_.program);
    ends_[i].last_lines = output_.last_lines(static_cast<int>(i));
  }
}

void Agent::end_all_but_helpers() const {
  end_descendants({rendezvous_.helper()});
}

// A terminal that is held (Ctrl-S) gets the report once it is let go.
void Agent::await_output() {
  if (supervisor_ && supervisor_->stopping() && isatty(STDERR_FILENO) != 1) {
    output_deadline_ = Clock::now() + kLastOutputTime;
  }
  while (!std::exchange(output_done_, false)) {
    wait_for_events();
  }
}

// Whether the nodes' common remote launcher shows what the first one says, too.
bool Agent::is_mute() const {
  const Membership& log = rendezvous_.membership();
  return job_.options.has_remote_launcher && job_.environment.node_rank > 0 &&
      !log.plan.nodes.empty() && log.has(log.plan.nodes.front().id);
}

void Agent::say(const std::string& text) {
  output_.message("ddprun: " + text);
}

int Agent::tell_end(JobReport report) {
  const std::string error = write_report(report);
  if (!error.empty()) {
    say(error);
    report.file.clear();
  }
  // Of one remote launcher's nodes, the one that failed and the first one tell.
  const bool is_said = job_.start_error ||
      (report.reason == StopReason::kOtherNode && is_mute() &&
       rendezvous_.membership().phase == Membership::Phase::kEnded);
  const std::string text = is_said ? "" : report_text(report);
  if (!text.empty()) {
    say(text);
  }
  output_.finish();
  await_output();
  return report.exit_code;
}

void Agent::abandon(int exit_code) {
  end_all_but_helpers(); // which tells the other nodes, and then ends
  remove_private_folder(job_.private_folder);
  _exit(exit_code); // the output may be held up: nobody waits for it
}

void agent_main(Job& job, FileDescriptor lifeline) {
  int exit_code = kExitInternal;
  try {
    setsid(); // out of reach of the terminal's signals: the launcher process
              // passes them
    prctl(PR_SET_NAME, "ddp-agent"); // `pkill -9 ddprun` should leave it
    become_subreaper();
    Agent agent(job, std::move(lifeline));
    exit_code = agent.run();
  } catch (const std::exception& error) {
    end_descendants();
    write_all(STDERR_FILENO, std::string("ddprun: ") + error.what() + "\n");
    const auto* known = dynamic_cast<const LaunchError*>(&error);
    exit_code = known != nullptr ? known->exit_code() : kExitInternal;
  }
  _exit(exit_code); // exit() belongs to the launcher process
}

// What it says of the ranks.

std::vector<int> Agent::ranks_of(std::vector<int> local_ranks) const {
  for (int& each : local_ranks) {
    each += job_.environment.first_rank;
  }
  return local_ranks;
}

void Agent::say_what_is_awaited(Time now) {
  next_notice_.reset();
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
        " cannot be killed: blocked in the kernel (a "
        "driver, or a file system that does not answer)");
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
  report.restarts = number_;
  report.max_restarts = job_.options.max_restarts;
  report.duration = Clock::now() - started_;
  report.ranks = ends_;
  if (report.reason == StopReason::kFailure) {
    report.root = root_cause(report.ranks);
    report.blame = blame_departed(report.ranks);
    if (!report.blame &&
        !job_.options.nodes.several()) { // which have more ranks
      report.blame = blame_caller(report.ranks);
    }
  }
  report.folder = job_.private_folder.empty() ? job_.folder : "";
  return report;
}

// The end of the job tells of the rest.
JobReport Agent::make_attempt_report() {
  JobReport report = make_report();
  report.max_restarts = 0;
  report.file.clear();
  return report;
}

// Of one that is not the last: what is to be said of it.
std::string Agent::conclude_attempt() {
  const std::string text = report_text(make_attempt_report());
  remove_private_folder(attempt_folder(job_.private_folder, attempt_->number));
  return text;
}

// That of the first failure; where that rank was stopped before it could end,
// of the first that did end.
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
