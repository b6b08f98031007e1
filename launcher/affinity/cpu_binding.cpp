#include <launcher/affinity/cpu_binding.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include <sys/syscall.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>
#include <common/text.h>
#include <launcher/affinity/machine.h>

namespace ddp {
namespace {

using Cpus = std::vector<Cpu>;

/// The share of a rank, or of a GPU that no rank uses.
struct RankAffinity {
  int node = 0;
  int position = 0; // among the shares of its node
  int count = 1; // of shares of its node
};

[[noreturn]] void refuse(const std::string& message) {
  throw LaunchError(kExitUsage, "--numa-binding: " + message);
}

bool is_index(const std::string& text, size_t end) {
  return !text.empty() && text.size() < 9 &&
      text.find_first_not_of("0123456789") == std::string::npos &&
      std::stoul(text) < end;
}

// `name` is a UUID or a prefix of one. The driver may not report UUIDs before a
// GPU has been used.
const Gpu& gpu_named(const std::vector<Gpu>& gpus, const std::string& name) {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& g) {
    return g.uuid.rfind(name, 0) == 0;
  });
  if (found == gpus.end()) {
    refuse(
        "the GPU of '" + name +
        "' is unknown; select GPUs by number, or bind with 'share'");
  }
  return *found;
}

// As in CUDA, the list ends at the first missing index.
std::vector<Gpu> selected_gpus(
    const std::vector<Gpu>& gpus,
    const std::optional<std::string>& devices) {
  if (!devices || gpus.empty()) {
    return gpus;
  }
  std::vector<Gpu> selected;
  for (const std::string& entry : split_list(*devices)) {
    if (is_index(entry, gpus.size())) {
      selected.push_back(gpus[std::stoul(entry)]);
    } else if (entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0) {
      selected.push_back(gpu_named(gpus, entry));
    } else {
      break;
    }
  }
  return selected;
}

std::vector<int> nodes_of(const Cpus& cpus) {
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) {
    nodes.insert(cpu.node);
  }
  return {nodes.begin(), nodes.end()};
}

std::vector<RankAffinity> affinities_on(const std::vector<int>& nodes) {
  std::map<int, int> taken;
  std::vector<RankAffinity> affinities;
  for (const int node : nodes) {
    affinities.push_back({node, taken[node]++, 0});
  }
  for (RankAffinity& affinity : affinities) {
    affinity.count = taken[affinity.node];
  }
  return affinities;
}

std::vector<RankAffinity> find_affinities(
    const Machine& machine,
    size_t ranks,
    const std::optional<std::string>& devices) {
  std::vector<int> nodes;
  for (const Gpu& gpu : selected_gpus(machine.gpus, devices)) {
    nodes.push_back(gpu.node);
  }
  if (!nodes.empty() && nodes.size() < ranks) {
    refuse(
        "rank " + std::to_string(nodes.size()) + " has no GPU (" +
        std::to_string(nodes.size()) + " visible, " + std::to_string(ranks) +
        " ranks); if ranks use no GPU, hide all GPUs: "
        "CUDA_VISIBLE_DEVICES= (empty)");
  }
  if (nodes.empty()) {
    const auto all = nodes_of(machine.cpus);
    for (size_t rank = 0; rank < ranks; ++rank) {
      nodes.push_back(all[rank * all.size() / ranks]);
    }
  }
  return affinities_on(nodes);
}

template <typename Fits>
Cpus select(const Cpus& cpus, const Fits& fits) {
  Cpus found;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(found), fits);
  return found;
}

// Groups CPUs by key, in the order of keys.
template <typename KeyOf>
std::vector<Cpus> grouped_by(const Cpus& cpus, const KeyOf& key_of) {
  std::map<decltype(key_of(cpus.front())), Cpus> groups;
  for (const Cpu& cpu : cpus) {
    groups[key_of(cpu)].push_back(cpu);
  }
  std::vector<Cpus> values;
  for (const auto& [key, group] : groups) {
    values.push_back(group);
  }
  return values;
}

Cpus on_node(const Cpus& cpus, int node) {
  Cpus found = select(cpus, [&](const Cpu& cpu) { return cpu.node == node; });
  if (found.empty()) {
    std::vector<int> allowed;
    for (const Cpu& cpu : cpus) {
      allowed.push_back(cpu.id);
    }
    refuse(
        "a GPU is on NUMA node " + std::to_string(node) +
        ", whose CPUs are not available to ddprun (available: CPUs " +
        number_list(allowed) +
        "); widen the CPU affinity, or choose other GPUs");
  }
  return found;
}

Cpus on_socket_of(const Cpus& cpus, int node) {
  const int socket = on_node(cpus, node).front().socket;
  return select(cpus, [&](const Cpu& cpu) { return cpu.socket == socket; });
}

std::vector<Cpus> by_core(const Cpus& cpus) {
  return grouped_by(cpus, [](const Cpu& cpu) { // keeps nodes together
    return std::make_pair(cpu.node, cpu.core);
  });
}

// The first `units.size() % count` shares have one more unit than the others.
Cpus even_share(const std::vector<Cpus>& units, size_t position, size_t count) {
  size_t begin = position * units.size() / count;
  size_t end = begin + 1;
  if (units.size() >= count) {
    const size_t size = units.size() / count;
    const size_t more = units.size() % count;
    begin = position * size + std::min(position, more);
    end = begin + size + (position < more);
  }
  Cpus share;
  for (size_t i = begin; i < end; ++i) {
    share.insert(share.end(), units[i].begin(), units[i].end());
  }
  return share;
}

Cpus share_of_all(const Cpus& cpus, size_t rank, size_t ranks) {
  auto units = by_core(cpus);
  if (units.size() < ranks) {
    units = grouped_by(cpus, [](const Cpu& cpu) {
      return std::make_tuple(cpu.node, cpu.core, cpu.id);
    });
  }
  return even_share(units, rank, ranks);
}

Cpus exclusive_share(const Cpus& cpus, const RankAffinity& affinity) {
  const auto cores = by_core(on_node(cpus, affinity.node));
  const auto count = static_cast<size_t>(affinity.count);
  if (cores.size() < count) {
    refuse(
        "'exclusive' has " + std::to_string(cores.size()) +
        " core(s) of NUMA node " + std::to_string(affinity.node) + " for " +
        std::to_string(count) + " ranks; use 'share' or 'node'");
  }
  return even_share(cores, static_cast<size_t>(affinity.position), count);
}

Cpus core_complex(
    const Cpus& cpus,
    const RankAffinity& affinity,
    const std::string& root) {
  auto complexes = grouped_by(
      on_node(cpus, affinity.node),
      [&](const Cpu& cpu) { return last_level_cache(cpu.id, root); });
  std::stable_sort(
      complexes.begin(), complexes.end(), [](const Cpus& a, const Cpus& b) {
        return a.size() > b.size();
      });
  return complexes[static_cast<size_t>(affinity.position) % complexes.size()];
}

RankPlace place_on(const Cpus& cpus) {
  RankPlace place;
  for (const Cpu& cpu : cpus) {
    CPU_SET(cpu.id, &place.cpus);
  }
  place.memory_nodes = nodes_of(cpus);
  return place;
}

} // namespace

cpu_set_t allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    refuse("this computer has more CPUs than are supported");
  }
  return set;
}

std::vector<RankPlace> rank_places(
    Binding binding,
    int ranks,
    const std::optional<std::string>& devices,
    const cpu_set_t& allowed,
    const std::string& root) {
  const auto count = static_cast<size_t>(ranks);
  std::vector<RankPlace> places(count);
  const Machine machine = read_machine(allowed, root);
  const Cpus& cpus = machine.cpus;
  const auto affinities = binding == Binding::kShare
      ? std::vector<RankAffinity>(count)
      : find_affinities(machine, count, devices);
  const auto cpus_of = [&](size_t rank) {
    const RankAffinity& affinity = affinities[rank];
    switch (binding) {
      case Binding::kNode:
        return on_node(cpus, affinity.node);
      case Binding::kSocket:
        return on_socket_of(cpus, affinity.node);
      case Binding::kExclusive:
        return exclusive_share(cpus, affinity);
      case Binding::kCoreComplex:
        return core_complex(cpus, affinity, root);
      default:
        return share_of_all(cpus, rank, count);
    }
  };
  for (size_t rank = 0; rank < count; ++rank) {
    places[rank] = place_on(cpus_of(rank));
  }
  return places;
}

int usable_cpus(const std::vector<RankPlace>& places) {
  std::array<int, CPU_SETSIZE> ranks{}; // of each CPU
  for (size_t cpu = 0; cpu < ranks.size(); ++cpu) {
    for (const RankPlace& each : places) {
      ranks[cpu] += CPU_ISSET(cpu, &each.cpus) ? 1 : 0;
    }
  }
  double smallest = CPU_SETSIZE;
  for (const RankPlace& each : places) {
    double share = 0;
    for (size_t cpu = 0; cpu < ranks.size(); ++cpu) {
      share += CPU_ISSET(cpu, &each.cpus) ? 1.0 / ranks[cpu] : 0;
    }
    smallest = std::min(smallest, share);
  }
  return std::max(
      1,
      static_cast<int>(smallest * static_cast<double>(places.size()) + 1e-6));
}

int apply_place(const RankPlace& place) {
  if (sched_setaffinity(0, sizeof place.cpus, &place.cpus) != 0) {
    return errno;
  }
  constexpr int prefer_one = 1; // MPOL_PREFERRED
  constexpr int prefer_many = 5; // MPOL_PREFERRED_MANY, Linux 5.15
  constexpr size_t bits = 8 * sizeof(unsigned long);
  unsigned long mask[1024 / bits] = {};
  for (const int node : place.memory_nodes) {
    const auto bit = static_cast<size_t>(node);
    if (bit < 8 * sizeof mask) {
      mask[bit / bits] |= 1UL << bit % bits;
    }
  }
  const int mode = place.memory_nodes.size() == 1 ? prefer_one : prefer_many;
  syscall(SYS_set_mempolicy, mode, mask, 8 * sizeof mask);
  return 0;
}

std::string describe(const RankPlace& place) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &place.cpus)) {
      cpus.push_back(cpu);
    }
  }
  const auto& nodes = place.memory_nodes;
  return std::string(cpus.size() == 1 ? "CPU " : "CPUs ") + number_list(cpus) +
      (nodes.size() == 1 ? ", memory of node " : ", memory of nodes ") +
      number_list(nodes);
}

} // namespace ddp
