#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace ddp {

/// The data with which a forked child runs another program, prepared before the
/// fork.
struct WorkerPlan {
  std::string program; // the file
  std::vector<std::string> arguments; // argv, its name first
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
  /// blocks signals. Otherwise it inherits all of these from the calling
  /// thread.
  bool apart = true;
  /// Further work of the child before exec; async-signal-safe calls only.
  std::function<void()> prepare;
};

/// Forks a worker. It dies with the calling thread, has no signal handlers, and
/// inherits only the descriptors 0, 1, 2 and `kept_fds`. Throws
/// std::system_error.
pid_t fork_worker(WorkerPlan plan);

} // namespace ddp
