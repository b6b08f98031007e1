#pragma once

#include <sched.h>

#include <string>
#include <vector>

namespace ddp {

/// A CPU (hardware thread) on which ranks may run.
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

/// The CPUs and GPUs of this computer, as Linux reports them.
struct Machine {
  std::vector<Cpu> cpus; // at least one, ordered by number
  std::vector<Gpu> gpus; // ordered by PCI address
};

/// Reads /sys and /proc under `root`; keeps only the CPUs in `allowed`. Throws
/// LaunchError (exit code 2) if the CPU topology cannot be read.
Machine read_machine(const cpu_set_t& allowed, const std::string& root);

/// The lowest CPU that shares the last-level cache of `cpu`. Throws LaunchError
/// (exit code 2) if Linux does not report that cache.
int last_level_cache(int cpu, const std::string& root);

} // namespace ddp
