#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

/// Set to 1 for a ddprun that a remote launcher starts.
constexpr const char* kRemoteLauncherVariable = "DDP_REMOTE_LAUNCHER";

/// The environment that all ranks of a job share.
struct JobEnvironment {
  int world_size = 1;
  int local_world_size = 1;
  int node_rank = 0;
  int nnodes = 1;
  int first_rank = 0; // of this node
  std::string master_addr;
  std::string run_id;
  std::string role = "default";
  std::string host; // of this node
  int restarts = 0; // number of restarts so far
  int max_restarts = 0;
  /// In a job of several nodes, the log's name and the plan's number.
  std::string epoch;
  /// Whether ddprun's output goes to a terminal.
  bool at_terminal = false;
  /// Value for OMP_NUM_THREADS; 0 leaves the variable as it is.
  int omp_threads = 0;
  /// Whether each rank sees one GPU: the entry of the local rank in
  /// `own_devices`, or, without an entry, the GPU with the local rank's number.
  bool virtual_local_rank = false;
  std::vector<std::string> own_devices;
  /// The user's variables.
  std::vector<std::pair<std::string, std::string>> extra;
};

/// The environment of one rank in one attempt.
struct RankEnvironment {
  int local_rank = 0;
  int master_port = 0;
  /// The file for the rank's error; empty for none.
  std::string error_file;
  /// The descriptor of the rank's heartbeat; -1 for none.
  int heartbeat_fd = -1;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

/// The variables that ddprun sets for a rank: those of torchrun,
/// DDP_HEARTBEAT_FD, DDP_TTY=1 for rank 0 at a terminal, and the user's
/// variables.
Variables rank_variables(
    const JobEnvironment& job,
    const RankEnvironment& rank);

/// The environment of a rank, as "NAME=value": `inherited` (ddprun's
/// environment, null-terminated) with the variables of `set` added. Replaces or
/// drops DDP_TOKEN and a scheduler's variables about its tasks
/// (`describes_scheduler_task`).
std::vector<std::string> worker_environment(
    const Variables& set,
    const char* const* inherited);

/// An equal share of `cpus` for each rank if several ranks share the CPUs, or
/// if a quota that OpenMP does not read limits them (`has_quota`), and the user
/// has not set OMP_NUM_THREADS (`omp_setting`, null if unset); otherwise 0.
int omp_threads_per_rank(
    int ranks,
    int cpus,
    const char* omp_setting,
    bool has_quota = false);

} // namespace ddp
