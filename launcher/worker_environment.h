#pragma once

#include <string>
#include <vector>

namespace ddp {

/// What all ranks of a job share.
struct JobEnvironment {
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string run_id;
  /// Number of the listening socket that rank 0 inherits; -1 for none.
  int store_fd = -1;
  /// Whether somebody watches ddprun's output at a terminal.
  bool at_terminal = false;
  /// Value for OMP_NUM_THREADS; 0 leaves the variable as it is.
  int omp_threads = 0;
};

/// The environment of one rank, as "NAME=value": ddprun's own, `inherited`
/// (null-terminated), with the variables that torchrun sets for a job on one
/// node. What an outer launcher said about its own job is replaced or dropped.
/// Rank 0 gets DDP_STORE_FD, and DDP_TTY=1 at a terminal.
std::vector<std::string> worker_environment(
    const JobEnvironment& job,
    int rank,
    const char* const* inherited);

/// A fair share of `cpus` for each rank where several share them and the user
/// has not set OMP_NUM_THREADS (`omp_setting`, null where unset); else 0.
int omp_threads_per_rank(int ranks, int cpus, const char* omp_setting);

} // namespace ddp
