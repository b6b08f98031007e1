#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

/// Set to 1 for a ddprun that another one starts on its host.
constexpr const char* kRemoteLauncherVariable = "DDP_REMOTE_LAUNCHER";

/// What all ranks of a job share.
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
  int restarts = 0; // so far
  int max_restarts = 0;
  /// Of a job of several nodes: its log's name and the plan's number.
  std::string epoch;
  /// Whether someone watches ddprun's output at a terminal.
  bool at_terminal = false;
  /// Value for OMP_NUM_THREADS; 0 leaves the variable as it is.
  int omp_threads = 0;
  /// Each rank sees one GPU: the entry of its local rank here, or else that
  /// number.
  bool virtual_local_rank = false;
  std::vector<std::string> own_devices;
  /// The user's own.
  std::vector<std::pair<std::string, std::string>> extra;
};

/// What is a rank's own in one attempt.
struct RankEnvironment {
  int local_rank = 0;
  int master_port = 0;
  /// Where it may leave its error; empty for nowhere.
  std::string error_file;
  /// Its heartbeat's descriptor; -1 for none.
  int heartbeat_fd = -1;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

/// The variables that ddprun sets for a rank: those that torchrun sets, and
/// DDP_HEARTBEAT_FD, for rank 0 DDP_TTY=1 at a terminal, and the user's.
Variables rank_variables(
    const JobEnvironment& job,
    const RankEnvironment& rank);

/// The environment of a rank, as "NAME=value": ddprun's own, `inherited`
/// (null-terminated), with `set`. What a scheduler said about its own job
/// is replaced or dropped (`describes_scheduler_task`), and so is DDP_TOKEN.
std::vector<std::string> worker_environment(
    const Variables& set,
    const char* const* inherited);

/// A fair share of `cpus` for each rank where several share them and the user
/// has not set OMP_NUM_THREADS (`omp_setting`, null if unset); else 0.
int omp_threads_per_rank(int ranks, int cpus, const char* omp_setting);

} // namespace ddp
