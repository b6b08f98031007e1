#include <launcher/agent/descendants.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <common/file_descriptor.h>

namespace ddp {

void become_subreaper() {
  check_call(prctl(PR_SET_CHILD_SUBREAPER, 1), "cannot become a subreaper");
}

std::vector<pid_t> child_processes() {
  std::ifstream list("/proc/thread-self/children");
  std::vector<pid_t> pids;
  for (pid_t pid; list >> pid;) {
    pids.push_back(pid);
  }
  return pids;
}

int end_descendants(const std::vector<pid_t>& spared) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  int reaped = 0;
  while (std::chrono::steady_clock::now() < deadline) {
    bool left = false;
    for (pid_t pid : child_processes()) {
      if (std::find(spared.begin(), spared.end(), pid) != spared.end()) {
        continue;
      }
      left = true;
      kill(pid, SIGKILL);
      if (waitpid(pid, nullptr, WNOHANG) == pid) {
        ++reaped;
      }
    }
    if (!left) {
      break;
    }
    // SIGCHLD coalesces and may have been taken already: wait for it, but not
    // for long.
    const timespec a_moment{0, 1000 * 1000};
    sigtimedwait(&child_signal, nullptr, &a_moment);
  }
  return reaped;
}

} // namespace ddp
