#pragma once

#include <sched.h>

#include <string>
#include <vector>

namespace ddp {

/// Which CPUs and memory each rank of a node is kept to; names and meanings as
/// torchrun's --numa-binding, and even shares.
enum class Binding {
  kNone,
  kNode, // the NUMA node of the rank's GPU
  kSocket, // all NUMA nodes of that node's socket
  kExclusive, // an own share of the cores of that node
  kCoreComplex, // the cores of that node that share one last-level cache
  kShare, // an even share of all cores
};

/// Where a rank runs.
struct RankPlace {
  cpu_set_t cpus{};
  bool bound = false; // else `cpus` means nothing
  /// NUMA nodes that its memory comes from, first choice; empty for any.
  std::vector<int> memory_nodes;
};

} // namespace ddp
