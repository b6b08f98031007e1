#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options.h>

namespace ddp {

/// What starts the ddprun of one host.
struct HostCommand {
  std::string host;
  /// Whether it is this machine, which needs no remote shell.
  bool is_here = false;
  std::vector<std::string> words;
};

/// What starts a job on all of its hosts, in the order of their ranks. Draws
/// the job's name and the port of its meeting where they are not given.
std::vector<HostCommand> host_commands(const LaunchOptions& options);

/// What --dry-run prints of them: a line each.
std::string describe_commands(const LaunchOptions& options);

/// Starts a ddprun on each of --hosts, carries their output, passes signals on
/// to them, and waits until all have ended. Returns the job's exit code: that
/// of each ddprun, or kExitInfrastructure where one could not be started or was
/// cut off. Those ddpruns end when this process does, whatever way. Throws
/// LaunchError, std::system_error where nothing could be started.
int run_on_hosts(const LaunchOptions& options);

} // namespace ddp
