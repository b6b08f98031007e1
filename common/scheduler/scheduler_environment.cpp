#include <common/scheduler/scheduler_environment.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/launcher_names.h>
#include <common/scheduler/slurm_tasks.h>

namespace ddp {
namespace {

using Kind = SchedulerEnvironment::Kind;

// 0 if the variable is unset or not a number.
int number(const EnvironmentLookup& lookup, const char* name) {
  const std::string text = lookup(name).value_or("");
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::max(0, value);
}

std::optional<SchedulerEnvironment> find_mpi(const EnvironmentLookup& lookup) {
  for (const auto& names : kMpiLaunchers) {
    if (!lookup(names.proof ? names.proof : names.rank)) {
      continue;
    }
    SchedulerEnvironment found{Kind::kMpi, names.command, 0, 0, 0};
    found.tasks = std::max(1, number(lookup, names.world_size));
    found.rank = number(lookup, names.rank);
    found.tasks_here = names.local_size ? number(lookup, names.local_size) : 0;
    found.nodes = names.nodes ? number(lookup, names.nodes) : 0;
    return found;
  }
  return std::nullopt;
}

std::optional<SchedulerEnvironment> find_slurm(
    const EnvironmentLookup& lookup) {
  if (!lookup("SLURM_JOB_ID")) {
    return std::nullopt;
  }
  SchedulerEnvironment found{Kind::kSlurmScript, "Slurm"};
  found.nodes = std::max(1, number(lookup, "SLURM_JOB_NUM_NODES"));
  // Scripts also have SLURM_PROCID and SLURM_NTASKS; only a step has a step id.
  if (is_slurm_step(lookup("SLURM_STEP_ID").value_or(""))) {
    found.kind = Kind::kSlurm;
    found.name = "srun";
    found.rank = number(lookup, "SLURM_PROCID");
    found.tasks = std::max(1, number(lookup, "SLURM_STEP_NUM_TASKS"));
    found.nodes = std::max(1, number(lookup, "SLURM_STEP_NUM_NODES"));
    found.tasks_here = slurm_tasks_on_node(
        lookup("SLURM_STEP_TASKS_PER_NODE").value_or(""),
        number(lookup, "SLURM_NODEID"));
  }
  return found;
}

std::optional<SchedulerEnvironment> find_pods(const EnvironmentLookup& lookup) {
  const bool by_rank = lookup("RANK") && lookup("WORLD_SIZE");
  const bool are_pods = lookup("KUBERNETES_SERVICE_HOST") &&
      lookup("MASTER_ADDR") && !lookup("LOCAL_RANK") &&
      (by_rank || lookup("JOB_COMPLETION_INDEX"));
  if (!are_pods) {
    return std::nullopt;
  }
  const int pods = number(lookup, "WORLD_SIZE");
  const int rank = number(lookup, by_rank ? "RANK" : "JOB_COMPLETION_INDEX");
  return SchedulerEnvironment{Kind::kPods, "Kubernetes", pods, 1, pods, rank};
}

std::string direct_start(const SchedulerEnvironment& launcher) {
  return launcher.kind == Kind::kSlurm ? "srun --ntasks-per-node=N "
                                       : launcher.name + " -n N ";
}

[[noreturn]] void reject_several_here(
    const SchedulerEnvironment& launcher,
    const std::string& program) {
  const std::string count = launcher.tasks_here > 1
      ? std::to_string(launcher.tasks_here) + " tasks on this node"
      : std::to_string(launcher.tasks) + " tasks";
  throw LaunchError(
      kExitUsage,
      launcher.name + " started ddprun as one of " + count +
          ", and each would start separate ranks: start the program without "
          "ddprun (" +
          direct_start(launcher) + program + "), or one task per node" +
          (launcher.kind == Kind::kSlurm ? " (--ntasks-per-node=1)" : "") +
          "; --standalone makes each of them a separate job (see ddprun "
          "--help)");
}

const char* const kTaskBeginnings[] = {
    "OMPI_COMM_WORLD_",
    "OMPI_APP_CTX_",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_ess_",
    "PMIX_",
    "PMI_",
    "MV2_COMM_WORLD_",
    "PALS_",
    "FLUX_TASK_",
    "SLURM_STEP_"};

const char* const kTaskNames[] = {
    "OMPI_MCA_pmix", // excludes "isolated", which a single process needs
    "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_launch",
    "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_precondition_transports",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_FIRST_RANKS",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_FILE_LOCATION",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "FLUX_JOB_SIZE",
    "SLURM_STEPID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_GTIDS"};

} // namespace

std::optional<SchedulerEnvironment> detect_scheduler(
    const EnvironmentLookup& lookup) {
  for (auto find : {&find_mpi, &find_slurm, &find_pods}) {
    if (auto found = find(lookup)) {
      return found;
    }
  }
  return std::nullopt;
}

bool is_once_per_node(const SchedulerEnvironment& launcher) {
  // Slurm can start several tasks on some nodes only. mpirun counts its own
  // node, which may have no task.
  const bool as_many = launcher.nodes == launcher.tasks;
  if (launcher.tasks_here == 0) {
    return as_many;
  }
  return launcher.tasks_here == 1 && (as_many || launcher.kind != Kind::kSlurm);
}

std::string check_scheduler(
    const SchedulerEnvironment& launcher,
    const std::string& program) {
  if (launcher.kind == Kind::kSlurmScript) {
    return launcher.nodes == 1
        ? ""
        : "this Slurm job has " + std::to_string(launcher.nodes) +
            " nodes, of which only this one is used; `srun --ntasks-per-node=1 "
            "ddprun ... " +
            program + "` uses all";
  }
  if (launcher.tasks > 1 && !is_once_per_node(launcher)) {
    reject_several_here(launcher, program);
  }
  return "";
}

bool describes_scheduler_task(const std::string& variable) {
  if (variable.rfind("PMIX_MCA_", 0) == 0) {
    return false; // parameters, which users set as well
  }
  for (const char* beginning : kTaskBeginnings) {
    if (variable.rfind(beginning, 0) == 0) {
      return true;
    }
  }
  return std::find(std::begin(kTaskNames), std::end(kTaskNames), variable) !=
      std::end(kTaskNames);
}

} // namespace ddp
