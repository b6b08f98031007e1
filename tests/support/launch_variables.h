#pragma once

#include <map>
#include <optional>
#include <string>

#include <common/scheduler/environment_lookup.h>

namespace ddp::test {

using Variables = std::map<std::string, std::string>;

/// An environment with only these variables.
inline EnvironmentLookup environment_of(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt
                                    : std::optional(found->second);
  };
}

/// The variables with some changed.
inline Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

inline Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// The variables about ranks and hosts that launchers set.

/// torchrun 2.11, the second of two workers.
inline const Variables kTorchrunWorker{
    {"GROUP_RANK", "0"},
    {"GROUP_WORLD_SIZE", "1"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"MASTER_ADDR", "127.0.0.1"},
    {"MASTER_PORT", "29500"},
    {"RANK", "1"},
    {"ROLE_RANK", "1"},
    {"ROLE_WORLD_SIZE", "2"},
    {"TORCHELASTIC_RESTART_COUNT", "0"},
    {"TORCHELASTIC_RUN_ID", "none"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    {"WORLD_SIZE", "2"}};

/// Open MPI 4.1, the second of two processes of an mpirun.
inline const Variables kOpenMpi{
    {"OMPI_APP_CTX_NUM_PROCS", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_FIRST_RANKS", "0"},
    {"OMPI_MCA_orte_num_nodes", "1"},
    {"OMPI_NUM_APP_CTX", "1"},
    {"OMPI_UNIVERSE_SIZE", "2"},
    {"PMIX_HOSTNAME", "vm"},
    {"PMIX_ID", "253231105.1"},
    {"PMIX_NAMESPACE", "253231105"},
    {"PMIX_RANK", "1"},
    {"PMIX_SERVER_URI4", "253231104.0;tcp4://127.0.0.1:54903"},
    {"PMIX_VERSION", "4.2.2rc2"}};

/// Slurm 22.05, task `rank` of srun -N2 -n4 on the hosts n0 and n1.
inline Variables slurm_task(int rank) {
  return {
      {"SLURMD_NODENAME", rank < 2 ? "n0" : "n1"},
      {"SLURM_GTIDS", rank < 2 ? "0,1" : "2,3"},
      {"SLURM_JOB_ID", "14"},
      {"SLURM_JOB_NODELIST", "n[0-1]"},
      {"SLURM_JOB_NUM_NODES", "2"},
      {"SLURM_LAUNCH_NODE_IPADDR", "10.9.0.1"},
      {"SLURM_LOCALID", std::to_string(rank % 2)},
      {"SLURM_NNODES", "2"},
      {"SLURM_NODEID", std::to_string(rank / 2)},
      {"SLURM_NPROCS", "4"},
      {"SLURM_NTASKS", "4"},
      {"SLURM_PROCID", std::to_string(rank)},
      {"SLURM_STEPID", "0"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NODELIST", "n[0-1]"},
      {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_STEP_NUM_TASKS", "4"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
      {"SLURM_TASKS_PER_NODE", "2(x2)"}};
}

} // namespace ddp::test
