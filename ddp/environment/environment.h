#pragma once

#include <common/scheduler/environment_lookup.h>
#include <ddp/internal/check.h>
#include <ddp/process_group_options.h>

namespace ddp {

/// What the program, its launcher and the environment say about this process's
/// place in the job. `world_size == 1` is a process on its own.
struct LaunchEnvironment {
  /// Who said it, for messages; empty if no one did.
  std::string source;
  /// What they may not have meant, to be said; mostly empty.
  std::string note;
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Place among the processes of this host, where the launcher told.
  std::optional<int64_t> local_rank;
  /// Where the ranks meet. Empty and 0 for a process on its own, and where no
  /// one told: then rank 0 has to choose a place and tell the others.
  std::string master_addr;
  int64_t master_port = 0;
  /// Rank 0 listens at the first free one of so many ports from `master_port`
  /// on, and the others look for it there.
  int64_t port_count = 1;
  /// The network interface that the user chose, if so.
  std::string interface;
  /// The launcher serves the key-value store, so that rank 0, too, is its
  /// client (TORCHELASTIC_USE_AGENT_STORE=True: torchrun, ddprun).
  bool launcher_hosts_store = false;
  /// A listening socket for `master_port` of rank 0's own choice.
  std::optional<int> store_descriptor;
  /// Key prefix of this attempt to run the job. A launcher that restarts its
  /// workers may keep one store for all attempts; without a prefix the new
  /// ranks would read the addresses of dead ones.
  std::string attempt;
};

/// The lookup in this process's own environment.
EnvironmentLookup process_environment();

/// The value of an integer variable. Throws `c10::ValueError` if it is anything
/// else than an integer from `min` to `max`.
std::optional<int64_t> integer_variable(
    const EnvironmentLookup& lookup,
    const char* name,
    int64_t min,
    int64_t max);

/// What a PMIx server says about a job that it started. Of the second program
/// that one process of an mpirun executes it knows the rank only.
struct PmixJob {
  int64_t rank = 0;
  std::optional<int64_t> size;
  std::optional<int64_t> local_rank;
  std::optional<int64_t> local_size;
};

/// Asks this process's PMIx server; none if there is none to ask.
using PmixQuery = std::function<std::optional<PmixJob>()>;

/// Combines `options`, which win, with the variables that a launcher set.
/// `pmix` is asked where only PMIX_RANK is set, which does not say how many
/// there are. Throws `c10::ValueError` with names and values where one variable
/// is missing, cannot be read, or contradicts another.
///
/// In this order: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT if
/// all are there (torchrun, ddprun); Open MPI, MPICH and Intel MPI, MVAPICH,
/// PALS, Flux; PMIx; Slurm within a step; RANK and WORLD_SIZE alone. Slurm's
/// are not looked at where others are set, since mpirun's processes inherit
/// them from the script. Source: torch.distributed's env:// rendezvous and the
/// launchers' documentation.
LaunchEnvironment read_launch_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup = process_environment(),
    const PmixQuery& pmix = nullptr);

/// Fills what `options` leaves open from DDP_BACKEND, DDP_DEVICE, DDP_TIMEOUT,
/// DDP_WAIT_NOTICE, DDP_CHECK_REPLICAS, DDP_INTERFACE and DDP_SHARE_GPUS.
/// Throws `c10::ValueError` if one of them cannot be read.
ProcessGroupOptions complete_options(
    ProcessGroupOptions options,
    const EnvironmentLookup& lookup = process_environment());

} // namespace ddp
