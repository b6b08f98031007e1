#pragma once

#include <launcher/cli/options.h>

namespace ddp {

/// Starts a ddprun on each of --hosts, carries their output, passes signals on
/// to them, and waits until all have ended. Returns the job's exit code: that
/// of each ddprun, or kExitInfrastructure where one could not be started or was
/// cut off. Those ddpruns end when this process does, whatever way. Throws
/// LaunchError, std::system_error where nothing could be started.
int run_on_hosts(const LaunchOptions& options);

} // namespace ddp
