#pragma once

#include <sched.h>

#include <string>
#include <vector>

namespace ddp {

/// A CPU (hardware thread) that ranks may run on.
struct Cpu {
  int id = 0;
  int core = 0; // the lowest CPU of its physical core
  int node = 0; // NUMA
  int socket = 0;
};

/// An NVIDIA GPU.
struct Gpu {
  std::string uuid; // "GPU-..."
  int node = 0; // NUMA
};

/// What Linux tells about this computer.
struct Machine {
  std::vector<Cpu> cpus; // in the order of their numbers, at least one
  std::vector<Gpu> gpus; // in the order of their PCI addresses
};

/// Reads /sys and /proc under `root`; keeps the CPUs in `allowed`. Throws
/// LaunchError (exit code 2) where the CPUs' topology is not there.
Machine read_machine(const cpu_set_t& allowed, const std::string& root);

/// The lowest CPU that shares this one's last-level cache. Throws LaunchError
/// (exit code 2) where Linux does not tell.
int last_level_cache(int cpu, const std::string& root);

} // namespace ddp
