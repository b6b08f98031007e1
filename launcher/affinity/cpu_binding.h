#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// The CPUs and memory to which each rank of a node is bound. The names and
/// meanings are those of torchrun's --numa-binding, except kShare, which
/// torchrun lacks.
enum class Binding {
  kNone, // ranks are not bound
  kNode, // the NUMA node of the rank's GPU
  kSocket, // all NUMA nodes of that node's socket
  kExclusive, // a separate share of the cores of that node
  kCoreComplex, // the cores of that node that share one last-level cache
  kShare, // an even share of all cores
};

/// The CPUs and memory of a rank.
struct RankPlace {
  cpu_set_t cpus{};
  /// The preferred NUMA nodes for the rank's memory.
  std::vector<int> memory_nodes;
};

/// The CPUs on which this process may run (sched_getaffinity).
cpu_set_t allowed_cpus();

/// A place for each of `ranks` ranks within the CPUs `allowed`, from the
/// topology that Linux reports under `root`. Rank r's GPU is entry r of
/// `devices` (in the form of CUDA_VISIBLE_DEVICES) or, if `devices` is unset,
/// GPU r in the order of PCI addresses. If no GPU is visible, ranks are spread
/// evenly over the NUMA nodes. kShare and kExclusive divide whole cores. If
/// there are more ranks than cores, kShare divides hardware threads; if there
/// are more ranks than hardware threads, ranks share them. Throws LaunchError
/// (exit code 2) if the binding is not possible.
std::vector<RankPlace> rank_places(
    Binding binding,
    int ranks,
    const std::optional<std::string>& devices,
    const cpu_set_t& allowed,
    const std::string& root = "/");

/// The number of CPUs that `places` have, if each rank has as few as the rank
/// with the smallest share; ranks share a CPU that several places have.
int usable_cpus(const std::vector<RankPlace>& places);

/// Binds this process to `place`. Returns 0, or the errno if the process cannot
/// run on these CPUs; a kernel or container may refuse the memory binding
/// without an error. Async-signal-safe, for use between fork and exec.
int apply_place(const RankPlace& place);

/// "CPUs 0-3,8-11, memory of node 0".
std::string describe(const RankPlace& place);

} // namespace ddp
