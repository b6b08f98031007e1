#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ddp {

/// All that a forked child needs to run another program, made before the fork.
struct WorkerPlan {
  std::string program; // the file
  std::vector<std::string> arguments; // argv, its name first
  std::vector<std::string> environment;
  /// Where it starts; empty for here. As well here where that is gone.
  std::string folder;
  int in_fd = -1; // -1 for /dev/null
  int out_fd = 1;
  int err_fd = 2;
  std::vector<int> kept_fds; // inherited besides 0, 1 and 2
  int exec_error_fd = -1; // takes errno, an int, where exec fails
  /// Leads a session and process group of its own, ignores no signals and
  /// blocks none. Else these are as the calling thread's.
  bool apart = true;
  /// What else the child does before exec: async-signal-safe calls only.
  std::function<void()> prepare;
};

/// Forks a worker: dies with the calling thread, has no handlers for signals,
/// and inherits no descriptor but 0, 1, 2 and those to be kept. Throws
/// std::system_error.
pid_t fork_worker(WorkerPlan plan);

} // namespace ddp
