#include <launcher/agent/agent.h>

#include <exception>

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <launcher/private_folder.h>
#include <launcher/processes.h>

namespace ddp {

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
      job_,
      number_,
      std::move(listener),
      descriptor_limit_,
      output_,
      [this](int fd) { watch(fd); });
  supervisor_.emplace(job_.options.nproc_per_node, job_.options.grace, now);
  if (job_.options.hang_timeout.count() > 0) {
    next_tick_ = now + kTickTime;
  }
}

void Agent::end_attempt() {
  next_tick_.reset();
  next_warning_.reset();
  end_all_but_helpers(); // the store, and processes that ranks left behind
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

// No deadline for a terminal: after Ctrl-S, it gets the report when it resumes.
void Agent::await_output() {
  if (supervisor_ && supervisor_->stopping() && isatty(STDERR_FILENO) != 1) {
    output_deadline_ = Clock::now() + kLastOutputTime;
  }
  wait_while([&] { return !std::exchange(output_done_, false); });
}

// Whether the remote launcher of the nodes also shows the first node's
// messages.
bool Agent::is_mute() const {
  const Membership& log = rendezvous_.membership();
  return job_.options.has_remote_launcher && job_.environment.node_rank > 0 &&
      !log.plan.nodes.empty() && log.has(log.plan.nodes.front().id);
}

void Agent::say(const std::string& text) {
  output_.message("ddprun: " + text);
}

int Agent::tell_end(JobReport report) {
  exit_code_ = report.exit_code;
  const std::string error = write_report(report);
  if (!error.empty()) {
    say(error);
    report.file.clear();
  }
  // Of one remote launcher's nodes, only the failed and the first one report.
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
  end_all_but_helpers(); // the helper notifies the other nodes, and ends
  remove_private_folder(job_.private_folder);
  // Does not wait for output, which may be blocked.
  _exit(exit_code_.value_or(exit_code));
}

void agent_main(Job& job, FileDescriptor lifeline) {
  int exit_code = kExitInternal;
  try {
    setsid(); // out of reach of the terminal's signals: the launcher process
              // forwards them
    prctl(PR_SET_NAME, "ddp-agent"); // `pkill -9 ddprun` should leave it alive
    become_subreaper();
    Agent agent(job, std::move(lifeline));
    exit_code = agent.run();
  } catch (const std::exception& error) {
    end_descendants();
    write_all(STDERR_FILENO, std::string("ddprun: ") + error.what() + "\n");
    const auto* known = dynamic_cast<const LaunchError*>(&error);
    exit_code = known != nullptr ? known->exit_code() : kExitInternal;
    write_error_report(job.options, exit_code, error.what());
  }
  _exit(exit_code); // exit() belongs to the launcher process
}

} // namespace ddp
