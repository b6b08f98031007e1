#include <launcher/agent.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <launcher/descendants.h>
#include <launcher/launch_error.h>
#include <launcher/placement/machine.h>
#include <launcher/private_folder.h>
#include <launcher/signals.h>
#include <launcher/worker.h>

namespace ddp {
namespace {

constexpr int kFrontDied = kExitSignalBase + SIGKILL;
// How long a stopped job waits for a reader that does not read (a pager).
constexpr std::chrono::seconds kLastOutputTime(5);
constexpr std::chrono::seconds kTick(1);

// Of a file that is there and may be executed.
std::string describe_exec_error(int error) {
  if (error == ENOENT) {
    return "the interpreter it names does not exist";
  }
  return std::strerror(error) +
      std::string(error == ENOEXEC ? "; a script starts with a #! line" : "");
}

// Several pipes and a pidfd for each rank go beyond the usual limit of 1024.
// Returns the limit that was, for the ranks.
rlimit raise_descriptor_limit() {
  rlimit limit{};
  check_call(getrlimit(RLIMIT_NOFILE, &limit), "cannot read RLIMIT_NOFILE");
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

JobNames names_of(const Job& job) {
  JobNames names;
  names.world_size = job.environment.world_size;
  names.role = job.environment.role;
  names.node = job.environment.node_rank;
  names.host = host_name();
  return names;
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

} // namespace

Agent::Agent(Job& job, FileDescriptor lifeline)
    : job_(job),
      descriptor_limit_(raise_descriptor_limit()),
      lifeline_(std::move(lifeline)),
      signals_(open_signal_descriptor()),
      events_(check_call(epoll_create1(EPOLL_CLOEXEC), "cannot use epoll")),
      output_(job.options.output, names_of(job), STDOUT_FILENO, STDERR_FILENO),
      shows_status_(
          isatty(STDERR_FILENO) == 1 &&
          job.options.output.mode != OutputMode::kRaw) {}

int Agent::run() {
  watch(lifeline_.get());
  watch(signals_.get());
  watch(output_.done_fd());
  watch(output_.drained_fd());
  output_.start();
  for (run_attempt(); may_restart(); run_attempt()) {
    JobReport report = make_report();
    report.max_restarts = 0; // the end of the job tells of these
    report.file.clear();
    remove_private_folder(
        job_.private_folder.empty() ? "" : attempt_folder(job_, number_));
    ++number_;
    output_.message(
        report_text(report) + "\nddprun: all ranks are started again (" +
        std::to_string(number_) + " of " +
        std::to_string(job_.options.max_restarts) + " restarts" + ")");
  }
  return conclude();
}

// ---------------------------------------------------------------------------
// One attempt

void Agent::run_attempt() {
  start_attempt();
  while (supervisor_->running()) {
    wait_for_events();
  }
  end_attempt();
}

void Agent::start_attempt() {
  Listener listener = number_ == 0
      ? std::move(job_.listener)
      : listen_on(job_.environment.master_addr, job_.options.master_port);
  const Time now = Clock::now();
  ends_.assign(static_cast<size_t>(job_.options.nproc_per_node), RankEnd());
  detail_.clear();
  drained_ = false;
  hang_watch_.emplace(
      job_.options.hang_timeout, job_.options.start_timeout, now);
  attempt_.reset(); // or the new ranks would hold its descriptors
  attempt_ = std::make_unique<Attempt>(
      job_, number_, std::move(listener), descriptor_limit_, output_);
  supervisor_.emplace(job_.options.nproc_per_node, job_.options.grace, now);
  watch(attempt_->exec_errors().get());
  for (const Attempt::Rank& each : attempt_->ranks()) {
    if (each.process) {
      watch(each.process.get());
    }
  }
  if (hang_watch_->enabled() || shows_status_) {
    next_tick_ = now + kTick;
  }
}

void Agent::end_attempt() {
  next_tick_.reset();
  next_notice_.reset();
  output_.set_status("");
  end_descendants(); // the store, and what ranks left behind
  output_.drain();
  limit_last_output();
  while (!drained_) {
    wait_for_events();
  }
  output_deadline_.reset();
  for (size_t i = 0; i < ends_.size(); ++i) {
    ends_[i].error =
        read_error_file(attempt_->ranks()[i].error_file, job_.program);
    ends_[i].last_lines = output_.last_lines(ends_[i].rank);
  }
}

// A terminal that is held (Ctrl-S) gets the report once it is let go.
void Agent::limit_last_output() {
  if (supervisor_->stopping() && isatty(STDERR_FILENO) != 1) {
    output_deadline_ = Clock::now() + kLastOutputTime;
  }
}

bool Agent::may_restart() const {
  const StopReason reason = supervisor_->reason();
  return number_ < job_.options.max_restarts && reason != StopReason::kNone &&
      reason != StopReason::kNotExecuted && supervisor_->signal() == 0;
}

int Agent::conclude() {
  JobReport report = make_report();
  report.exit_code = exit_code(report);
  if (!report.file.empty()) {
    const std::string error = write_report(report);
    if (!error.empty()) {
      output_.message("ddprun: " + error);
      report.file.clear();
    }
  }
  const std::string text = report_text(report);
  if (!text.empty()) {
    output_.message(text);
  }
  output_.finish();
  limit_last_output();
  while (!output_done_) {
    wait_for_events();
  }
  return report.exit_code;
}

// ---------------------------------------------------------------------------
// Events

void Agent::watch(int fd) {
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.fd = fd;
  check_call(
      epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &interest),
      "cannot watch a descriptor");
}

// Before a descriptor is closed: a child between fork and exec has a copy, and
// epoll would go on to report it.
void Agent::unwatch(int fd) {
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Agent::wait_for_events() {
  // The kernel lists ready descriptors in the order in which they became
  // ready: of two ranks that died, the first one comes first.
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(
      events_.get(), ready.data(), static_cast<int>(ready.size()), time_left());
  for (int i = 0; i < count; ++i) {
    handle_event(ready[static_cast<size_t>(i)].data.fd);
  }
  reap();
  tick();
}

// Milliseconds until something is due, as epoll wants them; -1 for nothing.
int Agent::time_left() const {
  std::optional<Time> next;
  for (const auto& each :
       {supervisor_ ? supervisor_->deadline() : std::nullopt,
        next_tick_,
        next_notice_,
        output_deadline_}) {
    if (each && (!next || *each < *next)) {
      next = each;
    }
  }
  if (!next) {
    return -1;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  constexpr int64_t longest = 24 * 3600 * 1000; // epoll's own is 25 days
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, longest));
}

// Does what is due.
void Agent::tick() {
  const Time now = Clock::now();
  if (output_deadline_ && now >= *output_deadline_) {
    abandon(abandoned_exit_code());
  }
  if (next_notice_ && now >= *next_notice_) {
    say_what_is_awaited(now);
  }
  const auto deadline = supervisor_->deadline();
  if (deadline && now >= *deadline) {
    if (supervisor_->reason() == StopReason::kSignal) {
      say_who_is_killed(); // others' deaths are in the report
    }
    send(supervisor_->deadline_passed(now));
  }
  if (next_tick_ && now >= *next_tick_) {
    next_tick_ = now + kTick;
    watch_progress(now);
    update_status(now);
  }
}

void Agent::handle_event(int fd) {
  if (fd == lifeline_.get()) {
    abandon(kFrontDied);
  } else if (fd == signals_.get()) {
    while (const int signal = next_signal(signals_)) {
      on_signal(signal);
    }
  } else if (fd == output_.done_fd()) {
    output_done_ = true;
  } else if (fd == output_.drained_fd()) {
    uint64_t count = 0;
    drained_ = read(fd, &count, sizeof count) == sizeof count;
  } else if (fd == attempt_->exec_errors().get()) {
    on_exec_error();
  } else {
    const auto& ranks = attempt_->ranks();
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].process.get() == fd) {
        on_rank_end(i);
      }
    }
  }
}

void Agent::on_signal(int signal) {
  if (signal == SIGCHLD) {
    return; // every wait ends with reap()
  }
  if (signal == SIGTSTP) {
    suspend();
  } else if (signal == SIGCONT) {
    resume();
  } else if (!ends_job(signal)) {
    send({signal});
  } else {
    end_job(signal);
  }
}

void Agent::end_job(int signal) {
  const bool first = supervisor_->signal() == 0;
  const bool running = supervisor_->running();
  if (!running && !first) {
    abandon(abandoned_exit_code());
  }
  const std::string name = describe_signal(signal);
  if (!first) {
    output_.message("ddprun: " + name + " again; killing all ranks");
  } else if (running) {
    output_.message("ddprun: stopping all ranks on " + name);
  } else { // but output may be held up, or an attempt would follow
    output_.message("ddprun: ending on " + name);
    output_deadline_ = Clock::now() + kLastOutputTime;
  }
  send(supervisor_->asked_to_end(signal, Clock::now()));
}

void Agent::on_exec_error() {
  ExecError failure{};
  FileDescriptor& errors = attempt_->exec_errors();
  const bool failed =
      read(errors.get(), &failure, sizeof failure) == sizeof failure;
  unwatch(errors.get());
  errors.reset();
  if (!failed || supervisor_->stopping()) {
    return; // all ranks run their program, or are being stopped
  }
  exec_error_ = failure.error == ENOENT ? kExitNotFound : kExitNotExecutable;
  detail_ = job_.program +
      ": cannot be executed: " + describe_exec_error(failure.error);
  send(supervisor_->kill_all(StopReason::kNotExecuted));
}

void Agent::on_rank_end(size_t index) {
  int status = 0;
  Attempt::Rank& rank = attempt_->ranks()[index];
  waitpid(rank.pid, &status, 0);
  RankEnd& end = ends_[index];
  end = describe_rank(index);
  end.error = read_error_file(rank.error_file, job_.program);
  end.last_lines = output_.last_lines(rank.rank);
  last_end_ns_ = std::max(now_ns(), last_end_ns_ + 1);
  end.time_ns = last_end_ns_;
  end.state.ended(status, std::chrono::nanoseconds(0));
  if (rank.process) {
    unwatch(rank.process.get());
    rank.process.reset();
  }
  send(supervisor_->rank_ended(
      static_cast<int>(index), status, is_consequence(end), Clock::now()));
  end.state = supervisor_->ranks()[index];
}

void Agent::on_store_end(int wait_status) {
  detail_ = "the store that the ranks meet at (pid " +
      std::to_string(attempt_->store()) + ") " + describe_end(wait_status) +
      "; all ranks were ended";
  send(supervisor_->kill_all(StopReason::kInfrastructure));
}

// Reaps orphans that came to us, the store, and ranks where there are no
// pidfds. A rank with one is left for its event, which is due.
void Agent::reap() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0) {
    const auto& ranks = attempt_->ranks();
    const auto rank =
        std::find_if(ranks.begin(), ranks.end(), [&](const auto& each) {
          return each.pid == info.si_pid;
        });
    const auto index = static_cast<size_t>(rank - ranks.begin());
    if (rank == ranks.end()) {
      int status = 0;
      waitpid(info.si_pid, &status, WNOHANG);
      if (info.si_pid == attempt_->store() && supervisor_->running()) {
        on_store_end(status);
      }
    } else if (!rank->process) {
      on_rank_end(index);
    } else {
      return;
    }
    info = {};
  }
}

void Agent::abandon(int exit_code) {
  end_descendants();
  remove_private_folder(job_.private_folder);
  _exit(exit_code); // the output may be held up: nobody waits for it
}

void agent_main(Job& job, FileDescriptor lifeline) {
  int exit_code = kExitInternal;
  try {
    setsid(); // out of reach of the terminal's signals: the front passes them
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
  _exit(exit_code); // exit() belongs to the front
}

} // namespace ddp
