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

} // namespace ddp
