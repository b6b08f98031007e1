#include <launcher/job.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <launcher/agent/agent.h>
#include <launcher/private_folder.h>
#include <launcher/processes.h>
#include <launcher/remote/launcher_link.h>
#include <launcher/report/report.h>

namespace ddp {
namespace {

// Reaps children: also orphans of other programs, as process 1 of a container.
// Returns the agent's wait status if the agent is among them.
std::optional<int> reap_children(pid_t agent) {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == agent) {
      return status;
    }
  }
  return std::nullopt;
}

// Forwards signals until the agent ends; returns its wait status.
int wait_for_agent(pid_t agent, LauncherLink launcher) {
  const FileDescriptor signals = open_signal_descriptor();
  // One request may come as a signal and, much later, over the link.
  constexpr pid_t by_signal = 1;
  constexpr pid_t over_link = 2;
  EndRequests end_requests;
  const auto forward = [&](int signal, pid_t source) {
    const auto now = std::chrono::steady_clock::now();
    if (!ends_job(signal) || end_requests.take(signal, now, source)) {
      kill(agent, signal);
    }
  };
  for (;;) {
    std::array<pollfd, 2> ready{
        {{signals.get(), POLLIN, 0}, {launcher.fd(), POLLIN, 0}}};
    poll(ready.data(), ready.size(), -1);
    if (ready[1].revents != 0) {
      for (const int signal : launcher.take_signals()) {
        forward(signal, over_link);
      }
    }
    while (const int signal = next_signal(signals)) {
      if (signal != SIGCHLD) {
        forward(signal, by_signal);
      } else if (const auto status = reap_children(agent)) {
        return *status;
      }
      if (signal == SIGTSTP) { // the agent has stopped the ranks
        stop_for_shell();
        kill(agent, SIGCONT); // also if this process was not stopped
      }
    }
  }
}

// The helper of a dead agent notifies the other nodes and ends.
void await_last_words(const std::vector<pid_t>& not_ours) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const auto has_own = [&] {
    const auto children = child_processes();
    return std::any_of(children.begin(), children.end(), [&](pid_t each) {
      return std::find(not_ours.begin(), not_ours.end(), each) ==
          not_ours.end();
    });
  };
  while (has_own() && std::chrono::steady_clock::now() < deadline) {
    await_child_signal(10);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

} // namespace

int run_launcher_process(Job& job) {
  if (job.options.has_remote_launcher) {
    std::signal(SIGHUP, SIG_DFL); // only the remote shell ignores it
  }
  take_signals();
  // A shell that became ddprun (exec) leaves children that are not ddprun's.
  const std::vector<pid_t> not_ours = child_processes();
  become_subreaper();
  Pipe lifeline = make_pipe();
  const pid_t agent = check_call(fork(), "cannot fork the agent");
  if (agent == 0) {
    lifeline.write_end.reset();
    agent_main(job, std::move(lifeline.read_end));
  }
  lifeline.read_end.reset();
  const int status =
      wait_for_agent(agent, LauncherLink(job.options.has_remote_launcher));
  if (job.options.nodes.several()) {
    await_last_words(not_ours);
  }
  end_descendants(not_ours); // if the agent could not
  remove_private_folder(job.private_folder);
  if (!WIFSIGNALED(status)) {
    return exit_code_of(status);
  }
  JobReport report = new_report(job.options);
  report.reason = StopReason::kInfrastructure;
  report.exit_code = exit_code_of(status);
  report.detail = "the agent (pid " + std::to_string(agent) + ") " +
      describe_end(status) + "; all ranks were ended";
  write_report(report);
  write_all(STDERR_FILENO, "ddprun: " + report_text(report) + "\n");
  return report.exit_code;
}

} // namespace ddp
