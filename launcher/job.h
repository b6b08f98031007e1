#pragma once

#include <optional>
#include <string>
#include <vector>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>
#include <launcher/cli/options.h>

namespace ddp {

/// The settings of a job, resolved before the first process is forked.
struct Job {
  LaunchOptions options;
  std::string program; // the executable file
  std::string store_program;
  JobEnvironment environment;
  /// The place of each rank of this node; empty if ranks are not bound.
  std::vector<RankPlace> places;
  /// The folder of the ranks' errors and logs, with a subfolder for each
  /// attempt and local rank; empty if there is none.
  std::string folder;
  /// `folder`, if it is removed at the end; otherwise empty.
  std::string private_folder;
  /// Notes for the user, one per line.
  std::vector<std::string> notes;
  /// The reason why this node cannot start ranks, to be reported to the other
  /// nodes.
  std::optional<LaunchError> start_error;
};

/// Resolves the settings of a job. Throws LaunchError if the job cannot run.
/// Leaves nothing behind except `folder`, which is created unless this is a dry
/// run.
Job make_job(LaunchOptions options);

/// A job of several nodes that cannot start because of this node. The job only
/// reports `error` to the other nodes.
Job make_failed_job(LaunchOptions options, const LaunchError& error);

/// The output of --dry-run.
std::string describe_job(const Job& job);

/// Runs the job in an agent process, forwards signals to it, and returns its
/// exit code. If the agent is killed, ends every descendant and returns 128 +
/// the signal. Throws std::system_error if the agent cannot start.
int run_launcher_process(Job& job);

} // namespace ddp
