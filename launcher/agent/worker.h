#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include <common/file_descriptor.h>
#include <launcher/affinity/cpu_binding.h>

namespace ddp {

/// All that a forked child needs to become a rank, made before the fork.
struct WorkerPlan {
  std::string program; // the file
  std::vector<std::string> arguments; // argv, its name first
  std::vector<std::string> environment;
  int null_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
  std::vector<int> kept_fds; // inherited besides 0, 1 and 2
  int exec_error_fd = -1; // takes an ExecError where exec fails
  std::optional<rlimit> descriptor_limit;
  RankPlace place;
};

/// What a worker that could not execute its program leaves in exec_error_fd.
struct ExecError {
  int error; // errno
};

/// Forks a worker: dies with its parent, leads a session and process group of
/// its own, reads /dev/null, and inherits no descriptor but 0, 1, 2 and those
/// to be kept. Call from the main thread: the parent-death signal follows the
/// thread that forked. Throws std::system_error.
pid_t fork_worker(const WorkerPlan& plan);

} // namespace ddp
