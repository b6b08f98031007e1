// The agent's reactions to the nodes' log.
#include <launcher/agent/agent.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include <sys/wait.h>

#include <common/scheduler/launch_error.h>
#include <launcher/private_folder.h>

namespace ddp {
namespace {

using Command = Rendezvous::Command;

// Whether a rank failed by itself although it was being stopped, also by the
// signal `passed_on` if that is not 0.
bool failed_by_itself(const RankEnd& end, int passed_on) {
  const int status = end.state.wait_status();
  const bool crashed = !end.state.alive() && WIFSIGNALED(status) &&
      WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGKILL &&
      WTERMSIG(status) != passed_on;
  return (crashed || end.error) && !is_consequence(end);
}

// A rank that dies slowly (a core dump) may be the cause of the failures for
// which it was being stopped.
bool blame_own_rank(JobReport* report) {
  const auto& ranks = report->ranks;
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [&](const RankEnd& each) {
        return failed_by_itself(each, report->signal);
      });
  if (found == ranks.end()) {
    return false;
  }
  report->root = static_cast<size_t>(found - ranks.begin());
  report->reason = StopReason::kFailure;
  return true;
}

} // namespace

// This node cannot run ranks. A job that needs it cannot start, and ends. A
// running job waits for another node.
void Agent::withdraw(int code, const std::string& why) {
  NodeStateMachine& machine = rendezvous_.machine();
  const std::string text = own_name() + ": " + why;
  const Membership& log = machine.membership();
  if (log.plan.epoch == log.first_epoch) {
    machine.end_job(code, text, Clock::now());
  } else {
    machine.leave(code, text, Clock::now());
  }
}

void Agent::decline() {
  withdraw(job_.start_error->exit_code(), job_.start_error->what());
  rendezvous_.machine().ranks_ended(false, Clock::now());
  take_commands();
}

Command Agent::await_command() {
  next_waiting_ = Clock::now() + kMissingTime;
  take_commands();
  wait_while([&] { return !command_; });
  next_waiting_.reset();
  return *std::exchange(command_, std::nullopt);
}

void Agent::take_commands() {
  bool is_withdrawn = false;
  for (Command& command : rendezvous_.take_commands(Clock::now())) {
    const bool is_due = command_ && command_->kind == Command::Kind::kStart;
    const bool runs = supervisor_ && supervisor_->running();
    if (command.kind == Command::Kind::kStart ||
        command.kind == Command::Kind::kExit) {
      command_ = std::move(command);
    } else if (is_due) { // ranks elsewhere have already failed
      reason_ = reason_to_stop(command);
      command_.reset();
      is_withdrawn = true;
    } else if (runs && command.kind == Command::Kind::kStop) {
      detail_ = supervisor_->stopping() ? detail_ : reason_to_stop(command);
      if (rendezvous_.membership().hangs) {
        send(supervisor_->hang(Clock::now()));
      } else if (!begin_pause(Clock::now())) {
        send(supervisor_->stop_with_others(Clock::now()));
      }
    } else if (runs) {
      if (supervisor_->signal() == 0) { // else already reported
        say("a node received a second request to end the job; killing all "
            "ranks");
      }
      send(supervisor_->kill_all(StopReason::kOtherNode));
    }
  }
  if (is_withdrawn) {
    give_up_start();
  }
}

void Agent::give_up_start() {
  rendezvous_.take_listener(); // no rank uses it
  rendezvous_.machine().ranks_ended(false, Clock::now());
  take_commands();
}

std::string Agent::reason_to_stop(const Command& command) const {
  const Membership& log = rendezvous_.membership();
  return log.cause == Membership::Cause::kFailure && !log.hangs
      ? name_of_node(log.failure->node) + ": " + log.failure->text
      : command.text;
}

void Agent::set_place(int index) {
  const Plan& plan = rendezvous_.membership().plan;
  JobEnvironment& environment = job_.environment;
  environment.nnodes = static_cast<int>(plan.nodes.size());
  environment.node_rank = index;
  environment.first_rank = plan.first_rank(index);
  environment.world_size = plan.world_size();
  environment.restarts = plan.restarts;
  environment.max_restarts = plan.max_restarts;
  if (job_.options.nodes.several()) {
    environment.epoch =
        rendezvous_.log_name() + ":" + std::to_string(plan.epoch);
  }
  environment.master_addr = rendezvous_.membership().address;
  if (supervisor_) { // there were ranks before
    say_reason();
    say_what_starts(plan);
  }
  number_ = plan.epoch - rendezvous_.membership().first_epoch;
  output_.set_job(environment);
}

void Agent::say_what_starts(const Plan& plan) {
  if (is_mute()) {
    return;
  }
  const size_t nodes = plan.nodes.size();
  std::string text =
      paused_ ? "the ranks continue" : "all ranks are started again";
  if (job_.options.nodes.several()) {
    text += ", " + std::to_string(plan.world_size()) + " on " +
        std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
  }
  if (plan.max_restarts > 0) {
    text += " (" + std::to_string(plan.restarts) + " of " +
        std::to_string(plan.max_restarts) + " restarts)";
  }
  say(text);
}

void Agent::run_planned(int index) {
  if (paused_ && (supervisor_->stopping() || !supervisor_->running())) {
    end_paused_ranks(); // one of them died
    if (rendezvous_.membership().phase != Membership::Phase::kRunning) {
      return give_up_start(); // ranks elsewhere failed meanwhile
    }
  }
  set_place(index);
  Listener listener = rendezvous_.take_listener();
  listener.port = rendezvous_.membership().port;
  if (paused_) {
    end_pause(std::move(listener));
  } else {
    try {
      start_attempt(std::move(listener));
    } catch (const std::system_error& error) { // of fork, or of descriptors
      end_all_but_helpers();
      attempt_.reset(); // it may be complete
      supervisor_.reset();
      say(error.what());
      job_.start_error = LaunchError(kExitInternal, error.what());
      return decline();
    }
  }
  wait_while([&] { return supervisor_->running() && !paused_; });
  if (!paused_) {
    end_attempt();
    tell_others();
  }
  const bool succeeded = !paused_ && supervisor_->reason() == StopReason::kNone;
  rendezvous_.machine().ranks_ended(succeeded, Clock::now());
  take_commands();
  keep_reason();
}

// Reports a failure immediately, again until its cause is known, and once all
// ranks have ended. The log already has a hang.
void Agent::tell_others() {
  const StopReason reason = supervisor_->reason();
  const bool is_told =
      told_ && (supervisor_->running() || reason == StopReason::kNotExecuted);
  if (is_told || paused_ || reason == StopReason::kNone ||
      reason == StopReason::kSignal || reason == StopReason::kHang) {
    return;
  }
  JobReport report = make_attempt_report();
  if (reason == StopReason::kOtherNode && !blame_own_rank(&report)) {
    return;
  }
  const bool follows =
      report.root && is_consequence(report.ranks[*report.root]);
  // A consequence of another failure is also reported, and may be corrected.
  told_ = !follows;
  const std::string text = report_text(report);
  const int code = reason == StopReason::kOtherNode
      ? exit_code_of(report.ranks[*report.root].state.wait_status())
      : exit_code(report);
  if (reason == StopReason::kNotExecuted) { // a restart cannot help
    withdraw(code, text);
  } else {
    rendezvous_.machine().rank_failed(code, follows, text, Clock::now());
  }
  take_commands();
}

// The reason is shown when the ranks are started again or must wait for a
// start; the end of the job has a separate report.
void Agent::keep_reason() {
  if (paused_) {
    reason_ = detail_;
    return;
  }
  const StopReason why = supervisor_->reason();
  if (why == StopReason::kNone ||
      (why == StopReason::kOtherNode && is_mute())) {
    return;
  }
  reason_ = report_text(make_attempt_report());
  remove_private_folder(attempt_folder(job_.private_folder, attempt_->number));
}

void Agent::say_reason() {
  if (!reason_.empty()) {
    say(std::exchange(reason_, {}));
  }
}

// Whether other nodes are stopping their ranks, which a second signal kills.
bool Agent::awaits_others() {
  const auto awaited = rendezvous_.membership().awaited();
  return std::any_of(awaited.begin(), awaited.end(), [&](const auto& each) {
    return each.id != rendezvous_.machine().self().id;
  });
}

std::string Agent::name_of_node(const std::string& id) const {
  const Plan& plan = rendezvous_.membership().plan;
  const int index = plan.index_of(id);
  return index < 0 ? "a node"
                   : "node " + plan.nodes[static_cast<size_t>(index)].host;
}

std::string Agent::own_name() {
  return "node " + rendezvous_.machine().self().host;
}

void Agent::leave_job(int signal) {
  NodeStateMachine& machine = rendezvous_.machine();
  const std::string text =
      own_name() + " was stopped by " + describe_signal(signal);
  const int code = kExitSignalBase + signal;
  if (signal == SIGTERM && job_.options.nodes.several()) {
    machine.leave(code, text, Clock::now()); // the job may continue
  } else {
    machine.end_job(code, text, Clock::now());
  }
  take_commands();
}

void Agent::say_who_is_missing(Time now) {
  next_waiting_ = now + kStillMissingTime;
  say_reason();
  say(rendezvous_.machine().awaited());
}

int Agent::conclude(const Command& exit) {
  const Membership& log = rendezvous_.membership();
  const auto& failure = log.failure;
  JobReport report = make_report();
  report.exit_code = exit.code;
  if (!supervisor_ && end_requests_.count() > 0) { // before there were ranks
    report.reason = StopReason::kSignal;
    return tell_end(std::move(report));
  }
  if (job_.start_error) {
    report.exit_code = job_.start_error->exit_code();
    report.reason = StopReason::kNotExecuted;
    report.detail = job_.start_error->what();
    return tell_end(std::move(report));
  }
  const bool hangs = log.hangs && report.reason == StopReason::kHang;
  const bool own_failure =
      failure && (hangs || failure->node == rendezvous_.machine().self().id);
  if (own_failure && report.reason == StopReason::kOtherNode) {
    blame_own_rank(&report);
  } else if (exit.code == 0) {
    report.reason = StopReason::kNone;
    if (!supervisor_ && !exit.text.empty()) { // this node has run nothing
      say(exit.text);
    }
  } else if (
      report.signal != 0 && exit.code == kExitSignalBase + report.signal) {
    report.reason = StopReason::kSignal; // reported when it arrived
    say_reason();
  } else if (report.reason == StopReason::kNotExecuted) {
    // The report already has its reason.
  } else if (!exit.text.empty()) {
    report.reason = StopReason::kOtherNode;
    report.detail = exit.text;
  } else if (failure && !own_failure) {
    report.reason = StopReason::kOtherNode;
    report.detail = name_of_node(failure->node) + ": " + failure->text;
  }
  if (report.reason == StopReason::kOtherNode) { // no rank of this node
    report.root.reset();
    report.blame.reset();
  }
  if (job_.options.nodes.several()) {
    report.nodes = log.plan.nodes;
  }
  return tell_end(std::move(report));
}

} // namespace ddp
