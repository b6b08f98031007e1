#include <algorithm>
#include <chrono>
#include <csignal>
#include <list>
#include <optional>
#include <vector>

#include <poll.h>

#include <common/poll_until.h>
#include <common/scheduler/launch_error.h>
#include <launcher/processes.h>
#include <launcher/remote/host_process.h>
#include <launcher/rendezvous/authentication.h>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;

// A ddprun ends when the job has ended everywhere. The others may take this
// time to end as well, and then the time that they need to stop their ranks.
constexpr std::chrono::seconds kFollowTime(2);
constexpr std::chrono::seconds kLastOutputTime(5);
// The time after which a message names the hosts without a started ddprun.
constexpr std::chrono::seconds kStartTime(10);

class RemoteLauncher {
 public:
  RemoteLauncher(
      const LaunchOptions& options,
      std::vector<HostCommand> commands);
  int run();

 private:
  bool is_running() const;
  void wait_for_events();
  void tick();
  void on_signal(int signal);
  void on_end(HostProcess& host);
  void fail(const std::string& text);
  void end_all();
  void pass_signal(int signal);
  void expect(Clock::duration time);
  void say(const std::string& text);
  void say_who_is_missing();
  void write_last_output();
  std::vector<pollfd> blocked_outputs() const;
  void write_output();
  bool awaits_reader(Clock::time_point since) const;

  const LaunchOptions& options_;
  FileDescriptor signals_;
  Sink out_{STDOUT_FILENO};
  Sink err_{STDERR_FILENO};
  std::list<HostProcess> hosts_;
  EndRequests end_requests_;
  bool ending_ = false; // all were asked to end
  std::optional<int> code_; // the job's, which all agents end with
  std::optional<Clock::time_point> deadline_; // for the next step of ending
  std::optional<Clock::time_point> missing_at_ = Clock::now() + kStartTime;
};

RemoteLauncher::RemoteLauncher(
    const LaunchOptions& options,
    std::vector<HostCommand> commands)
    : options_(options), signals_(open_signal_descriptor()) {
  const std::string secret =
      options.nodes.token.empty() ? random_hex(32) : options.nodes.token;
  const rlimit limit = raise_descriptor_limit();
  for (HostCommand& command : commands) {
    hosts_.emplace_back(std::move(command), secret, limit, &out_, &err_);
  }
}

int RemoteLauncher::run() {
  while (is_running()) {
    wait_for_events();
    tick();
    write_output();
  }
  write_last_output();
  return code_.value_or(kExitSignalBase + end_requests_.signal());
}

bool RemoteLauncher::is_running() const {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const auto& each) {
    return each.is_running();
  });
}

void RemoteLauncher::wait_for_events() {
  std::vector<pollfd> ready = blocked_outputs();
  ready.push_back({signals_.get(), POLLIN, 0});
  for (HostProcess& each : hosts_) {
    for (const int fd : each.fds_to_poll()) {
      ready.push_back({fd, POLLIN, 0});
    }
  }
  poll(
      ready.data(),
      ready.size(),
      detail::milliseconds_until(deadline_ ? deadline_ : missing_at_));
  for (HostProcess& each : hosts_) {
    each.carry();
  }
  while (const int signal = next_signal(signals_)) {
    on_signal(signal);
  }
}

void RemoteLauncher::tick() {
  if (missing_at_ && Clock::now() >= *missing_at_) {
    missing_at_.reset();
    say_who_is_missing();
  }
  if (!deadline_ || Clock::now() < *deadline_) {
    return;
  }
  if (awaits_reader({})) {
    deadline_ = Clock::now() + kFollowTime; // a slow reader may delay them
    return;
  }
  if (!ending_) {
    end_all();
    return;
  }
  for (HostProcess& each : hosts_) {
    if (each.is_running()) {
      say(each.host() + " has not ended; ddprun no longer waits for it");
      each.kill();
    }
  }
  deadline_.reset();
}

void RemoteLauncher::expect(Clock::duration time) {
  const auto deadline = Clock::now() + time;
  deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
}

void RemoteLauncher::on_signal(int signal) {
  if (signal == SIGCHLD) {
    for (HostProcess& each : hosts_) {
      if (each.reap()) {
        on_end(each);
      }
    }
    return;
  }
  const bool ends = ends_job(signal);
  if (ends && !end_requests_.take(signal, Clock::now())) {
    return;
  }
  pass_signal(signal);
  ending_ = ending_ || ends;
  if (ends && end_requests_.count() > 1) {
    expect(kLastOutputTime);
  }
  if (signal == SIGTSTP) {
    stop_for_shell();
    pass_signal(SIGCONT); // also if this process was not stopped
  }
}

void RemoteLauncher::pass_signal(int signal) {
  for (HostProcess& each : hosts_) {
    each.pass_signal(signal);
  }
}

void RemoteLauncher::end_all() {
  ending_ = true;
  pass_signal(SIGTERM);
  deadline_.reset();
  expect(options_.grace + options_.nodes.node_timeout + kLastOutputTime);
}

void RemoteLauncher::on_end(HostProcess& host) {
  if (host.has_finished() && !code_) {
    code_ = host.exit_code();
  }
  if (!ending_ && !host.has_started()) {
    fail("ddprun was not started on " + host.host() + host.describe_end());
  } else if (!ending_ && !host.has_finished()) {
    fail(host.host() + " was disconnected" + host.describe_end());
  } else if (!deadline_ && host.has_started()) {
    expect(
        ending_ ? options_.grace + options_.nodes.node_timeout
                : Clock::duration(kFollowTime));
  }
}

void RemoteLauncher::fail(const std::string& text) {
  code_ = kExitInfrastructure;
  say(text);
  end_all();
}

void RemoteLauncher::say(const std::string& text) {
  err_.append("ddprun: " + text + "\n");
}

void RemoteLauncher::say_who_is_missing() {
  std::string names;
  for (const HostProcess& each : hosts_) {
    if (each.is_running() && !each.has_started()) {
      names += (names.empty() ? "" : ", ") + each.host();
    }
  }
  if (!names.empty()) {
    say("the remote shell has not yet started ddprun on " + names);
  }
}

// A stalled reader delays the end of a successful job.
void RemoteLauncher::write_last_output() {
  const auto end = Clock::now();
  for (;;) {
    for (HostProcess& each : hosts_) {
      each.carry();
    }
    write_output();
    if (!awaits_reader(end)) {
      return;
    }
    std::vector<pollfd> blocked = blocked_outputs();
    poll(blocked.data(), blocked.size(), 1000);
  }
}

std::vector<pollfd> RemoteLauncher::blocked_outputs() const {
  return {{out_.blocked_fd(), POLLOUT, 0}, {err_.blocked_fd(), POLLOUT, 0}};
}

// If a reader closes its end, output is lost, but the job continues.
void RemoteLauncher::write_output() {
  if (const int error = out_.write()) {
    err_.append(dropped_output("output", error));
  }
  if (const int error = err_.write()) {
    out_.append(dropped_output("error", error));
  }
}

// Whether output remains that a reader may still take. In a job that was asked
// to end, a reader has kLastOutputTime from `since` and whenever it takes some.
bool RemoteLauncher::awaits_reader(Clock::time_point since) const {
  const auto taken = std::max({since, out_.last_taken(), err_.last_taken()});
  return out_.waiting() + err_.waiting() > 0 &&
      (!ending_ || Clock::now() < taken + kLastOutputTime);
}

} // namespace

int run_on_hosts(const LaunchOptions& options) {
  // Before signals are taken, since this waits for the name server.
  std::vector<HostCommand> commands = host_commands(options);
  take_signals();
  return RemoteLauncher(options, std::move(commands)).run();
}

} // namespace ddp
