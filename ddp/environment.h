#pragma once

#include <ddp/process_group_options.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// What the program, its launcher and the environment say about this process's
/// place in the job. `world_size == 1` is a process on its own.
struct LaunchEnvironment {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Place among the processes of this host, where the launcher told.
  std::optional<int64_t> local_rank;
  /// Where the ranks meet; empty and 0 for a process on its own.
  std::string master_addr;
  int64_t master_port = 0;
  /// The launcher's agent serves the key-value store, so that rank 0, too, is
  /// its client (torchrun's TORCHELASTIC_USE_AGENT_STORE=True).
  bool launcher_hosts_store = false;
  /// A listening socket for `master_port` that rank 0 inherited from ddprun.
  std::optional<int> store_descriptor;
  /// Key prefix of this attempt to run the job. A launcher that restarts its
  /// workers may keep one store for all attempts; without a prefix the new
  /// ranks would read the addresses of dead ones.
  std::string attempt;
};

/// Reads an environment variable; an unset one has no value.
using EnvironmentLookup =
    std::function<std::optional<std::string>(const char* name)>;

/// The lookup in this process's own environment.
EnvironmentLookup process_environment();

/// Combines `options`, which win, with the variables that torchrun, ddprun,
/// Open MPI, MPICH or Slurm set. Throws `c10::ValueError` with the variable's
/// name and value where one is missing, cannot be read, or contradicts another.
/// Source: torch.distributed's env:// rendezvous and torchrun's documentation.
LaunchEnvironment read_launch_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup = process_environment());

/// Fills what `options` leaves open from DDP_BACKEND, DDP_DEVICE and
/// DDP_TIMEOUT. Throws `c10::ValueError` where one of them cannot be read.
ProcessGroupOptions complete_options(
    ProcessGroupOptions options,
    const EnvironmentLookup& lookup = process_environment());

} // namespace ddp
