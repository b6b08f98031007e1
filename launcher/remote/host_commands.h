#pragma once

#include <string>
#include <vector>

#include <launcher/cli/options.h>

namespace ddp {

/// The command that starts the ddprun of one host.
struct HostCommand {
  std::string host;
  /// Whether the host is this machine, which needs no remote shell.
  bool is_here = false;
  std::vector<std::string> words;
};

/// The commands that start a job on all its hosts, in the order of the ranks.
/// Draws the job's id and the port of the rendezvous if they are not given.
std::vector<HostCommand> host_commands(const LaunchOptions& options);

/// The output of --dry-run: these commands, one per line, with secrets
/// redacted.
std::string describe_commands(const LaunchOptions& options);

/// Starts a ddprun on each of --hosts, forwards their output and signals to
/// them, and waits until all have ended. Returns the job's exit code: the
/// common code of the ddpruns, or kExitInfrastructure if one could not be
/// started or lost its connection. These ddpruns end when this process ends,
/// for any reason. Throws LaunchError or std::system_error if none could be
/// started.
int run_on_hosts(const LaunchOptions& options);

} // namespace ddp
