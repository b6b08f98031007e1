#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ddp {

/// A host on which a ddprun is to be started.
struct RemoteHost {
  std::string name; // or its address
  int ranks = 0; // 0 for what --nproc-per-node says
};

/// What --hosts, --hostfile and --rsh ask for.
struct RemoteOptions {
  /// Empty where each node's ddprun is started by somebody else.
  std::vector<RemoteHost> hosts;
  std::string shell = "ssh";
  /// All options as they were given, by their names: "env", "--env=A=1".
  std::vector<std::pair<std::string, std::string>> given;
};

} // namespace ddp
