#pragma once

namespace ddp {

/// The variables by which a launcher numbers its processes.
struct LauncherNames {
  const char* launcher;
  const char* command;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  /// A variable that is set only in processes that the launcher started. Null
  /// if `rank` alone proves this.
  const char* proof = nullptr;
  // Null if the launcher does not set the variable.
  const char* local_size = nullptr;
  const char* nodes = nullptr;
};

// Slurm and Cray systems also set PMI_RANK, but not MPICH's local ranks.
constexpr LauncherNames kMpiLaunchers[] = {
    {"Open MPI",
     "mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     nullptr,
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_MCA_orte_num_nodes"},
    {"MPICH",
     "mpiexec",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS"},
    {"MVAPICH",
     "MVAPICH's mpirun",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK",
     nullptr,
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PALS",
     "PALS's mpiexec",
     "PALS_RANKID",
     "PMI_SIZE",
     "PALS_LOCAL_RANKID",
     "PALS_RANKID",
     "PALS_LOCAL_SIZE"},
    {"Flux",
     "flux run",
     "FLUX_TASK_RANK",
     "FLUX_JOB_SIZE",
     "FLUX_TASK_LOCAL_ID",
     "FLUX_TASK_RANK",
     nullptr,
     "FLUX_JOB_NNODES"},
};

} // namespace ddp
