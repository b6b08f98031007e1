#include <launcher/agent/descendants.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
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

void await_child_signal(int milliseconds) {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  const timespec time{0, int64_t{milliseconds} * 1000 * 1000};
  sigtimedwait(&child_signal, nullptr, &time);
}

int end_descendants(const std::vector<pid_t>& spared) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
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
    await_child_signal(1);
  }
  return reaped;
}

} // namespace ddp
