#pragma once

#include <vector>

#include <launcher/cli/options/option.h>

namespace ddp {

// Each throws LaunchError (exit code 2) where that cannot be.

/// "node0:8,node1,[fd00::2]:4".
std::vector<RemoteHost> hosts_in_list(const OptionValue& value);

/// A file with a host on each line, as "node0 slots=8" or "node0:8"; what
/// follows a # is a comment.
std::vector<RemoteHost> hosts_in_file(const OptionValue& value);

/// Checks what is said besides hosts, where there are some.
void settle_hosts(const GivenOptions& given, const LaunchOptions& options);

} // namespace ddp
