#pragma once

#include <optional>
#include <string>
#include <vector>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>
#include <launcher/cli/options.h>

namespace ddp {

/// All that is decided before the first process is forked.
struct Job {
  LaunchOptions options;
  std::string program; // the file that is executed
  std::string store_program;
  JobEnvironment environment;
  /// Of each rank of this node; empty if none is bound.
  std::vector<RankPlace> places;
  /// Where ranks leave their errors and logs, below it a folder for each
  /// attempt and local rank; empty if there is none.
  std::string folder;
  /// The same where it is to be removed in the end; else empty.
  std::string private_folder;
  /// What the user should know, a line each.
  std::vector<std::string> notes;
  /// Why this node can start no rank, where others are to be told so.
  std::optional<LaunchError> start_error;
};

/// Decides it. Throws LaunchError where the job cannot be run. Leaves nothing
/// behind but `folder`, which is made unless it is a dry run.
Job make_job(LaunchOptions options);

/// One of several nodes that this one keeps from starting: it only tells them.
Job make_failed_job(LaunchOptions options, const LaunchError& error);

/// What --dry-run prints.
std::string describe_job(const Job& job);

/// Runs the job in an agent process, passes signals on to it, and ends with its
/// exit code. If the agent is killed, ends every descendant: 128 + its signal.
/// Takes the job's listener. Throws std::system_error where it cannot start.
int run_launcher_process(Job& job);

} // namespace ddp
