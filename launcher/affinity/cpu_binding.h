#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// Which CPUs and memory each rank of a node is kept to; names and meanings as
/// torchrun's --numa-binding, and even shares.
enum class Binding {
  kNone, // there are no places
  kNode, // the NUMA node of the rank's GPU
  kSocket, // all NUMA nodes of that node's socket
  kExclusive, // an own share of the cores of that node
  kCoreComplex, // the cores of that node that share one last-level cache
  kShare, // an even share of all cores
};

/// Where a rank runs.
struct RankPlace {
  cpu_set_t cpus{};
  /// NUMA nodes that its memory comes from, first choice.
  std::vector<int> memory_nodes;
};

/// The CPUs that this process may run on (sched_getaffinity).
cpu_set_t allowed_cpus();

/// A place for each of `ranks` ranks within the CPUs `allowed`, by what Linux
/// tells under `root`. Rank r's GPU is entry r of `devices` (which is as
/// CUDA_VISIBLE_DEVICES; unset: GPU r in the order of PCI addresses); where no
/// GPU is visible, ranks spread evenly over the NUMA nodes. kShare and
/// kExclusive part whole cores; kShare parts hardware threads where ranks
/// outnumber cores, and ranks share one where they outnumber those too. Throws
/// LaunchError (exit code 2) where it cannot.
std::vector<RankPlace> rank_places(
    Binding binding,
    int ranks,
    const std::optional<std::string>& devices,
    const cpu_set_t& allowed,
    const std::string& root = "/");

/// Moves this process to its place. Returns 0 or the errno of what kept it from
/// these CPUs; a kernel or container that refuses the memory is not an error.
/// Async-signal-safe, for between fork and exec.
int apply_place(const RankPlace& place);

/// "CPUs 0-3,8-11, memory of node 0".
std::string describe(const RankPlace& place);

} // namespace ddp
