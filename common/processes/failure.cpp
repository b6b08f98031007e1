#include <common/processes/failure.h>

#include <algorithm>
#include <cstring>

#include <sys/wait.h>

#include <common/scheduler/launch_error.h>

namespace ddp {
namespace {

// A rank that ended by itself, or that had an error when it was stopped.
bool is_candidate(const RankEnd& end) {
  return end.state.failed() || end.error.has_value();
}

} // namespace

bool is_consequence(const RankEnd& end) {
  if (end.failed_by_another) {
    return true;
  }
  if (end.error) {
    return end.error->is_consequence || tells_of_another(end.error->message);
  }
  return !WIFSIGNALED(end.state.wait_status()) &&
      std::any_of(
          end.last_lines.begin(), end.last_lines.end(), tells_of_another);
}

bool departed(const RankEnd& end) {
  return !end.state.alive() && end.state.wait_status() == 0 &&
      end.state.last_phase() == RankState::Phase::kRunning;
}

int64_t failure_time(const RankEnd& end) {
  return end.error ? std::min(end.error->time_ns, end.time_ns) : end.time_ns;
}

std::optional<size_t> root_cause(const std::vector<RankEnd>& ends) {
  std::optional<size_t> root;
  const auto key = [&](size_t i) {
    return std::make_pair(is_consequence(ends[i]), failure_time(ends[i]));
  };
  for (size_t i = 0; i < ends.size(); ++i) {
    if (is_candidate(ends[i]) && (!root || key(i) < key(*root))) {
      root = i;
    }
  }
  return root;
}

std::string describe_signal(int signal) {
  return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

std::string describe_end(int wait_status) {
  return WIFSIGNALED(wait_status)
      ? "was killed by " + describe_signal(WTERMSIG(wait_status))
      : "exited with code " + std::to_string(WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? kExitSignalBase + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

} // namespace ddp
