#pragma once

#include <optional>
#include <string>
#include <vector>

#include <common/scheduler/environment_lookup.h>

namespace ddp {

/// What an outer launcher that starts one ddprun on each node says of them.
struct OuterNodes {
  std::string launcher; // for messages
  /// 0 where nothing tells, as in an indexed job of Kubernetes.
  int nodes = 0;
  int rank = 0; // of this node
  /// Where the node of rank 0 is; empty where nothing tells. Open MPI names
  /// mpirun's own host, which need not have a task.
  std::string host;
  int port = 0;
  /// Equal on all nodes; empty where nothing is.
  std::string run_id;
};

/// None where ddprun was not started so.
std::optional<OuterNodes> find_outer_nodes(const EnvironmentLookup& lookup);

} // namespace ddp
