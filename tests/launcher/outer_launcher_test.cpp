// What started ddprun. The environments are those of real launches.
#include <tests/support/catch_plain.h>

#include <common/scheduler/launch_error.h>
#include <common/scheduler/outer_launcher.h>
#include <tests/launcher/option_parsing.h>

namespace ddp::test::outer_launcher_test {

const Variables kSlurmTask = slurm_task(3);

// The sbatch script of that job.
Variables script() {
  Variables variables = with(kSlurmTask, {{"SLURM_PROCID", "0"}});
  for (auto it = variables.begin(); it != variables.end();) {
    it = it->first.rfind("SLURM_STEP", 0) == 0 ? variables.erase(it) : ++it;
  }
  return variables;
}

// "refused: ..." or the note, as for `ddprun ./train`.
std::string verdict(const Variables& variables) {
  const auto launcher = find_outer_launcher(environment_of(variables));
  if (!launcher) {
    return "none";
  }
  try {
    return check_outer_launcher(*launcher, "./train");
  } catch (const LaunchError& error) {
    CHECK(error.exit_code() == kExitUsage);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return std::string("refused: ") + error.what();
  }
}

const Variables kOneTask = {
    {"SLURM_STEP_NUM_TASKS", "1"},
    {"SLURM_STEP_NUM_NODES", "1"},
    {"SLURM_NODEID", "0"},
    {"SLURM_STEP_TASKS_PER_NODE", "1"}};

TEST_CASE("a user's shell is no outer launcher", "[unit]") {
  CHECK(verdict({{"PATH", "/bin"}, {"RANK", "0"}}) == "none");
  // ddprun in a rank of torchrun:
  CHECK(
      verdict(
          {{"RANK", "1"},
           {"LOCAL_RANK", "1"},
           {"WORLD_SIZE", "2"},
           {"MASTER_ADDR", "127.0.0.1"},
           {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}) == "none");
}

TEST_CASE("several tasks on a node are refused", "[unit]") {
  CHECK_THAT(
      verdict(kOpenMpi),
      Has("refused: mpirun started ddprun as one of 2 tasks on "
          "this node") &&
          Has("(mpirun -n N ./train)"));
  CHECK_THAT(
      verdict(kSlurmTask),
      Has("refused: srun started ddprun as one of 2 tasks on "
          "this node") &&
          Has("(srun --ntasks-per-node=N ./train)") &&
          Has("--ntasks-per-node=1"));
  CHECK_THAT(
      verdict(
          {{"PMI_RANK", "1"},
           {"PMI_SIZE", "6"},
           {"MPI_LOCALRANKID", "1"},
           {"MPI_LOCALNRANKS", "3"}}),
      Has("refused: mpiexec started ddprun as one of 3"));
  CHECK_THAT(
      verdict({{"PALS_RANKID", "1"}, {"PMI_SIZE", "6"}}),
      Has("refused: PALS's mpiexec started ddprun as one of 6"));
}

TEST_CASE("tasks are counted on the node where ddprun is", "[unit]") {
  const Variables uneven = with(
      kSlurmTask,
      {{"SLURM_STEP_NUM_TASKS", "5"},
       {"SLURM_STEP_NUM_NODES", "3"},
       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}});
  CHECK_THAT(
      verdict(with(uneven, {{"SLURM_NODEID", "1"}})),
      Has("one of 2 tasks on this node"));
  CHECK_THAT(
      verdict(with(uneven, {{"SLURM_NODEID", "2"}})),
      Has("one of 5 tasks, and"));
}

TEST_CASE("a node where mpirun itself is has no task", "[unit]") {
  CHECK_THAT(
      verdict(with(kOpenMpi, {{"OMPI_MCA_orte_num_nodes", "2"}})),
      Has("one of 2 tasks on this node"));
}

TEST_CASE("one task on one node is fine", "[unit]") {
  CHECK(
      verdict(with(
          kOpenMpi,
          {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
           {"OMPI_COMM_WORLD_SIZE", "1"}})) == "");
  CHECK(verdict(with(kSlurmTask, kOneTask)) == "");
  CHECK(
      verdict(
          {{"RANK", "0"},
           {"WORLD_SIZE", "1"},
           {"MASTER_ADDR", "localhost"},
           {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}) == "");
}

TEST_CASE("MPI comes before the Slurm step it runs in", "[unit]") {
  Variables both = kSlurmTask; // of the daemon that mpirun started
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  both["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  both["OMPI_COMM_WORLD_SIZE"] = "1";
  CHECK(verdict(both) == "");
}

TEST_CASE("a script of Slurm is no step", "[unit]") {
  CHECK_THAT(
      verdict(script()), Has("2 nodes, of which this one alone is used"));
  for (const char* id : {"4294967290", "4294967291", "4294967292"}) {
    CHECK_THAT(
        verdict(with(script(), {{"SLURM_STEP_ID", id}})),
        Has("this one alone is used"));
  }
  CHECK(verdict(with(script(), {{"SLURM_JOB_NUM_NODES", "1"}})) == "");
}

TEST_CASE("ranks do not inherit which outer task they are", "[unit]") {
  for (const auto* variables : {&kOpenMpi, &kSlurmTask}) {
    for (const auto& [name, value] : *variables) {
      const bool of_job = name.rfind("SLURM_JOB_", 0) == 0 ||
          name == "SLURM_NNODES" || name == "SLURMD_NODENAME" ||
          name == "SLURM_LAUNCH_NODE_IPADDR";
      CAPTURE(name);
      CHECK(describes_outer_task(name) == !of_job);
    }
  }
  for (const std::string& name :
       words("OMPI_MCA_pmix OMPI_MCA_ess_base_vpid OMPI_MCA_orte_ess_num_procs "
             "OMPI_MCA_orte_launch OMPI_UNIVERSE_SIZE PMIX_SERVER_URI41 PMI_FD "
             "MPI_LOCALNRANKS MV2_COMM_WORLD_RANK SLURM_GTIDS")) {
    CAPTURE(name);
    CHECK(describes_outer_task(name));
  }
  for (const std::string& name :
       words("OMPI_MCA_btl OMPI_MCA_orte_tmpdir_base PMIX_MCA_gds "
             "SLURM_JOB_NODELIST SLURM_CPUS_ON_NODE PATH RANK")) {
    CAPTURE(name);
    CHECK_FALSE(describes_outer_task(name));
  }
}

} // namespace ddp::test::outer_launcher_test
