// The agent's events and deadlines.
#include <launcher/agent/agent.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/poll_until.h>
#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/processes.h>

namespace ddp {
namespace {

constexpr int kLauncherDied = kExitSignalBase + SIGKILL;

// For a file that exists and has execute permission.
std::string describe_exec_error(int error) {
  if (error == ENOENT) {
    return "its interpreter does not exist (the #! line of a script, or the "
           "dynamic loader of a binary)";
  }
  return std::strerror(error) +
      std::string(error == ENOEXEC ? "; a script starts with a #! line" : "");
}

} // namespace

void Agent::watch(int fd) {
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.fd = fd;
  check_call(
      epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &interest),
      "cannot watch a descriptor");
}

// Call this before a descriptor is closed: a child between fork and exec has a
// copy, which epoll would continue to report.
void Agent::unwatch(int fd) {
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Agent::wait_for_events() {
  // The kernel lists descriptors in the order in which they became ready, so
  // the rank that died first is handled first.
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(
      events_.get(), ready.data(), static_cast<int>(ready.size()), time_left());
  for (int i = 0; i < count; ++i) {
    handle_event(ready[static_cast<size_t>(i)].data.fd);
  }
  reap();
  tick();
}

// The timeout of epoll_wait: milliseconds until the next deadline, -1 for none.
int Agent::time_left() const {
  std::optional<Time> next;
  for (const auto& each :
       {supervisor_ ? supervisor_->deadline() : std::nullopt,
        rendezvous_.deadline(),
        next_waiting_,
        next_pause_look_,
        next_tick_,
        next_warning_,
        output_deadline_}) {
    if (each && (!next || *each < *next)) {
      next = each;
    }
  }
  return detail::milliseconds_until(next);
}

// Handles deadlines that have passed.
void Agent::tick() {
  const Time now = Clock::now();
  if (output_deadline_ && now >= *output_deadline_) {
    output_deadline_ = output_.last_taken() + kLastOutputTime;
    if (now >= *output_deadline_) { // nobody reads
      abandon(exit_code(make_report()));
    }
  }
  if (next_waiting_ && now >= *next_waiting_) {
    say_who_is_missing(now);
  }
  rendezvous_.tick(now);
  if (next_waiting_ && !reached_ && rendezvous_.machine().is_connected()) {
    reached_ = true;
    next_waiting_ = now + kMissingTime; // who is missing is known by then
  }
  take_commands();
  if (!supervisor_) {
    return; // no ranks yet
  }
  if (next_pause_look_ && now >= *next_pause_look_) {
    watch_pause(now);
  }
  if (next_warning_ && now >= *next_warning_) {
    say_what_is_awaited(now);
  }
  const auto deadline = supervisor_->deadline();
  if (deadline && now >= *deadline) {
    if (supervisor_->reason() == StopReason::kSignal) {
      say("the grace period of " + describe_time(job_.options.grace) +
          " is over, killing " + name_ranks(ranks_of(supervisor_->alive())));
      // Deaths for other reasons are in the report.
    }
    send(supervisor_->deadline_passed(now));
  }
  if (next_tick_ && now >= *next_tick_) {
    next_tick_ = now + kTickTime;
    watch_ranks(now);
  }
}

void Agent::handle_event(int fd) {
  if (fd == lifeline_.get()) {
    abandon(kLauncherDied);
  } else if (fd == signals_.get()) {
    pid_t sender = 0;
    while (const int signal = next_signal(signals_, &sender)) {
      on_signal(signal, sender);
    }
  } else if (fd == output_.done_fd()) {
    uint64_t count = 0;
    output_done_ = read(fd, &count, sizeof count) == sizeof count;
  } else if (fd == rendezvous_.fd()) {
    rendezvous_.handle_events(Clock::now());
    take_commands();
  } else if (attempt_ && fd == attempt_->exec_errors.get()) {
    on_exec_error();
  } else if (attempt_) {
    const auto& ranks = attempt_->ranks;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].process.get() == fd) {
        on_rank_end(i);
      }
    }
  }
}

void Agent::on_signal(int signal, pid_t sender) {
  if (signal == SIGCHLD) {
    return; // every wait ends with reap()
  }
  if (signal == SIGTSTP) {
    suspend();
  } else if (signal == SIGCONT) {
    resume();
  } else if (!ends_job(signal)) {
    send({signal});
  } else if (end_requests_.take(signal, Clock::now(), sender)) {
    end_job(signal);
  }
}

// Forwards the first signal; the second one kills the ranks.
void Agent::end_job(int signal) {
  const Time now = Clock::now();
  const std::string name = describe_signal(signal);
  const bool first = end_requests_.count() == 1;
  if (supervisor_ && supervisor_->running()) {
    say(first ? "stopping all ranks on " + name
              : name + " again; killing all ranks");
    send(supervisor_->asked_to_end(signal, now));
    leave_job(signal);
    return;
  }
  leave_job(signal);
  if (!first && !(end_requests_.count() == 2 && awaits_others())) {
    abandon(supervisor_ ? exit_code(make_report()) : kExitSignalBase + signal);
  }
  if (first) {
    say("ending on " + name);
  }
  if (supervisor_) {
    supervisor_->asked_to_end(signal, now);
  }
  if (!job_.options.nodes.several()) { // output may be blocked
    output_deadline_ = now + kLastOutputTime;
  }
}

void Agent::on_exec_error() {
  int error = 0;
  FileDescriptor& errors = attempt_->exec_errors;
  const bool failed = read(errors.get(), &error, sizeof error) == sizeof error;
  unwatch(errors.get());
  errors.reset();
  if (!failed || supervisor_->stopping()) {
    return; // all ranks run their program, or are being stopped
  }
  exec_error_ = error == ENOENT ? kExitNotFound : kExitNotExecutable;
  detail_ =
      job_.program + ": cannot be executed: " + describe_exec_error(error);
  send(supervisor_->kill_all(StopReason::kNotExecuted));
}

void Agent::on_rank_end(size_t index) {
  int status = 0;
  Attempt::Rank& rank = attempt_->ranks[index];
  waitpid(rank.pid, &status, 0);
  RankEnd& end = ends_[index];
  end.rank = rank.rank;
  end.local_rank = rank.local_rank;
  end.pid = rank.pid;
  if (const auto heart = rank.heartbeat.read()) {
    end.step = heart->step;
    end.activity = heart->activity;
    const uint64_t size = heart->failed_by_another;
    end.failed_by_another = size != 0;
    end.failed_in_part = size > 1 && // older libraries write 1
        size != static_cast<uint64_t>(job_.environment.world_size);
  }
  end.error = read_error_file(rank.error_file, job_.program);
  end.last_lines = output_.last_lines(rank.local_rank);
  const std::chrono::nanoseconds time =
      std::chrono::system_clock::now().time_since_epoch();
  last_end_ns_ = std::max<int64_t>(time.count(), last_end_ns_ + 1);
  end.time_ns = last_end_ns_;
  end.state.ended(status, std::chrono::nanoseconds(0));
  if (rank.process) {
    unwatch(rank.process.get());
    rank.process.reset();
  }
  send(supervisor_->rank_ended(
      static_cast<int>(index), status, is_consequence(end), Clock::now()));
  end.state = supervisor_->ranks()[index];
  if (departed(end) && !next_tick_) { // while others may wait for it
    next_tick_ = Clock::now() + kTickTime;
  }
  tell_others();
}

// Reaps adopted orphans, the store, and ranks without a pidfd. A rank with a
// pidfd is left for its event, which follows.
void Agent::reap() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0) {
    static const std::vector<Attempt::Rank> none;
    const auto& ranks = attempt_ ? attempt_->ranks : none;
    const auto rank =
        std::find_if(ranks.begin(), ranks.end(), [&](const auto& each) {
          return each.pid == info.si_pid;
        });
    const auto index = static_cast<size_t>(rank - ranks.begin());
    if (rank == ranks.end()) {
      int status = 0;
      waitpid(info.si_pid, &status, WNOHANG);
      if (attempt_ && info.si_pid == attempt_->store &&
          supervisor_->running()) {
        detail_ = "the ranks' store (pid " + std::to_string(info.si_pid) +
            ") " + describe_helper_end(status) + "; all ranks were ended";
        send(supervisor_->kill_all(StopReason::kInfrastructure));
      }
    } else if (!rank->process) {
      on_rank_end(index);
    } else {
      return;
    }
    info = {};
  }
}

} // namespace ddp
