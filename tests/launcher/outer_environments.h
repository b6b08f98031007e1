#pragma once

#include <map>
#include <string>

namespace ddp::test {

// What real launches set.

using LauncherVariables = std::map<std::string, std::string>;

/// Open MPI 4.1, rank 1 of 2 on one node.
inline const LauncherVariables kMpirun = {
    {"OMPI_APP_CTX_NUM_PROCS", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_MCA_orte_num_nodes", "1"},
    {"PMIX_NAMESPACE", "253231105"},
    {"PMIX_RANK", "1"}};

/// Slurm 22.05, task 3 of 4 on two nodes.
inline const LauncherVariables kSrun = {
    {"SLURM_JOB_ID", "14"},
    {"SLURM_JOB_NUM_NODES", "2"},
    {"SLURM_LOCALID", "1"},
    {"SLURM_NNODES", "2"},
    {"SLURM_NODEID", "1"},
    {"SLURM_NPROCS", "4"},
    {"SLURM_NTASKS", "4"},
    {"SLURM_PROCID", "3"},
    {"SLURM_STEPID", "0"},
    {"SLURM_STEP_ID", "0"},
    {"SLURM_STEP_NODELIST", "n[0-1]"},
    {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_STEP_NUM_TASKS", "4"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
    {"SLURM_TASKS_PER_NODE", "2(x2)"}};

/// The same, with some changed.
inline LauncherVariables with(
    LauncherVariables variables,
    const LauncherVariables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

} // namespace ddp::test
