#pragma once

#include <common/file_descriptor.h>
#include <common/scheduler/environment_lookup.h>
#include <ddp/internal/check.h>
#include <ddp/process_group_options.h>

namespace ddp {

/// This process's position in the job, from the program, its launcher and the
/// environment. `world_size == 1` means a single process.
struct LaunchEnvironment {
  /// The source of the values, for messages; may be empty.
  std::string source;
  /// A note about a probable mistake; usually empty.
  std::string note;
  int64_t rank = 0;
  int64_t world_size = 1;
  /// The rank among the processes of this host, if the launcher set it.
  std::optional<int64_t> local_rank;
  /// The address of the ranks' store. Empty, with port 0, for a single process
  /// or if no address is set; rank 0 must then choose an address and send it to
  /// the other ranks.
  std::string master_addr;
  int64_t master_port = 0;
  /// The number of ports from `master_port` on: rank 0 listens on the first
  /// free port, and the other ranks try all ports.
  int64_t port_count = 1;
  /// The network interface that the user chose; may be empty.
  std::string interface;
  /// Whether the address of MASTER_ADDR belongs to `interface`: then rank 0's
  /// store listens only at this address.
  bool meets_at_interface = false;
  /// Whether the launcher serves the key-value store, so that rank 0 is also a
  /// client (TORCHELASTIC_USE_AGENT_STORE=True: torchrun, ddprun), unless the
  /// program names another port than MASTER_PORT.
  bool launcher_hosts_store = false;
  /// A listening socket for the `master_port` that rank 0 chose, until the
  /// store takes it over; null if rank 0 chose none.
  std::shared_ptr<FileDescriptor> store_socket;
  /// Key prefix of this attempt to run the job. A launcher that restarts its
  /// workers may keep one store for all attempts; without a prefix, the new
  /// ranks would read the addresses of ended ranks.
  std::string attempt;
};

/// Returns a lookup in this process's environment.
EnvironmentLookup process_environment();

/// The value of an integer variable. Throws `c10::ValueError` if the value is
/// not an integer from `min` to `max`.
std::optional<int64_t> integer_variable(
    const EnvironmentLookup& lookup,
    const char* name,
    int64_t min,
    int64_t max);

/// A PMIx server's data about a job that the server started. If a process of
/// mpirun executes a second program, the server provides only the rank for this
/// program.
struct PmixJob {
  int64_t rank = 0;
  std::optional<int64_t> size;
  std::optional<int64_t> local_rank;
  std::optional<int64_t> local_size;
};

/// Queries this process's PMIx server; returns `std::nullopt` without a server.
using PmixQuery = std::function<std::optional<PmixJob>()>;

/// Combines `options`, which take precedence, with the variables that a
/// launcher set. `pmix` is queried if only PMIX_RANK is set, since PMIX_RANK
/// does not include the number of ranks. Throws `c10::ValueError` with names
/// and values if a variable is missing, cannot be parsed, or contradicts
/// another variable.
///
/// The order of sources is: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
/// MASTER_PORT if all are set (torchrun, ddprun); Open MPI, MPICH and Intel
/// MPI, MVAPICH, PALS, Flux; PMIx; Slurm within a step; RANK and WORLD_SIZE
/// alone. Slurm's variables are ignored if other launchers' variables are set,
/// since mpirun's processes inherit Slurm's variables from the batch script.
/// Source: torch.distributed's env:// rendezvous and the launchers'
/// documentation.
LaunchEnvironment read_launch_environment(
    const ProcessGroupOptions& options,
    const EnvironmentLookup& lookup = process_environment(),
    const PmixQuery& pmix = nullptr);

/// Sets the unset fields of `options` from DDP_BACKEND, DDP_DEVICE,
/// DDP_TIMEOUT, DDP_WAIT_NOTICE, DDP_CHECK_REPLICAS, DDP_INTERFACE and
/// DDP_SHARE_GPUS, or else to their defaults, if these do not depend on the
/// ranks. Throws `c10::ValueError` if a variable cannot be parsed or an option
/// is invalid.
ProcessGroupOptions complete_options(
    ProcessGroupOptions options,
    const EnvironmentLookup& lookup = process_environment());

} // namespace ddp
