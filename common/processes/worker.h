#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ddp {

/// The data with which a forked child runs another program, prepared before the
/// fork.
struct WorkerPlan {
  std::string program; // the path of the executable file
  std::vector<std::string> arguments; // argv, including argv[0]
  std::vector<std::string> environment;
  /// The working directory; empty for the current one, which is also used if
  /// the folder no longer exists.
  std::string folder;
  int in_fd = -1; // -1 for /dev/null
  int out_fd = 1;
  int err_fd = 2;
  std::vector<int> kept_fds; // inherited besides 0, 1 and 2
  int exec_error_fd = -1; // receives errno, an int, if exec fails
  /// The child leads a new session and process group, and neither ignores nor
  /// blocks signals. Otherwise the child inherits all of these from the calling
  /// thread.
  bool apart = true;
  /// Runs in the child before exec, after the signals are reset; may make only
  /// async-signal-safe calls.
  std::function<void()> prepare;
};

/// Forks a worker. The worker is killed when the calling thread ends, has no
/// signal handlers, and inherits only the descriptors 0, 1, 2 and `kept_fds`.
/// Throws std::system_error.
pid_t fork_worker(WorkerPlan plan);

} // namespace ddp
