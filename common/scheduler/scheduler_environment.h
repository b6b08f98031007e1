#pragma once

#include <common/scheduler/environment_lookup.h>

namespace ddp {

/// The scheduler or launcher that started ddprun, if it starts several
/// processes.
struct SchedulerEnvironment {
  enum class Kind {
    kMpi, // mpirun, mpiexec and similar
    kSlurm, // a step of Slurm: srun
    kPods, // pods with numbers in RANK (Kubeflow's PyTorchJob) or in
           // JOB_COMPLETION_INDEX (indexed jobs, JobSet)
    kSlurmScript, // an sbatch script or salloc's shell, outside any step
  };

  Kind kind = Kind::kMpi;
  std::string name; // for messages
  /// The tasks of this launch; 1 in a script; 0 if unknown.
  int tasks = 1;
  /// The tasks of this launch on this node; 0 if unknown.
  int tasks_here = 1;
  /// The nodes of the launch, or, in a script, of the allocation; 0 if unknown.
  int nodes = 1;
  /// The rank of this task, from 0.
  int rank = 0;
};

/// Finds the scheduler in the environment; none if a user started the process.
/// MPI has precedence over Slurm, since mpirun's processes inherit Slurm's
/// variables from the step that runs mpirun's daemons.
std::optional<SchedulerEnvironment> detect_scheduler(
    const EnvironmentLookup& lookup);

/// Whether `launcher` starts one task on each node.
bool is_once_per_node(const SchedulerEnvironment& launcher);

/// Throws LaunchError (exit code 2) if ddprun was started several times on one
/// node; the message shows how to start `program` instead. Returns a note for
/// the user, usually empty.
std::string check_scheduler(
    const SchedulerEnvironment& launcher,
    const std::string& program);

/// Whether a variable identifies this process within a scheduler's job, or is
/// needed to connect to the scheduler's launch. Ranks must not inherit these
/// variables: all ranks would be the same process of the scheduler's job, and
/// the second call to MPI_Init would fail. Without these variables, MPI_Init in
/// a rank creates a world of that rank alone. Variables that describe the
/// allocation (SLURM_JOB_ID, SLURM_JOB_NODELIST) or set parameters
/// (OMPI_MCA_btl, PMIX_MCA_gds) are not included.
bool describes_scheduler_task(const std::string& variable);

} // namespace ddp
