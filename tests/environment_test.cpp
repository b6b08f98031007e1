#include <tests/support/catch.h>

#include <ddp/environment/environment.h>
#include <ddp/environment/misspelt_variables.h>
#include <tests/support/launch_variables.h>

namespace ddp::test::environment_test {

/// The environment that these variables make, without a PMIx server unless one
/// is given.
LaunchEnvironment read(
    const Variables& variables,
    const ProcessGroupOptions& options = {},
    const PmixQuery& pmix = [] { return std::optional<PmixJob>(); }) {
  return read_launch_environment(options, environment_of(variables), pmix);
}

/// This rank's number, its source, and the given address of the rendezvous.
std::string text_of(const LaunchEnvironment& env) {
  std::ostringstream text;
  text << env.source << ": rank " << env.rank << " of " << env.world_size;
  if (env.local_rank) {
    text << ", local " << *env.local_rank;
  }
  if (!env.master_addr.empty()) {
    text << ", at " << env.master_addr << ":" << env.master_port;
  }
  return text.str();
}

/// The text of the error that these variables cause.
std::string error(
    const Variables& variables,
    const ProcessGroupOptions& options = {}) {
  return words_of<c10::ValueError>([&] { read(variables, options); });
}

const Variables kTorchrun{
    {"RANK", "1"},
    {"WORLD_SIZE", "3"},
    {"LOCAL_RANK", "1"},
    {"MASTER_ADDR", "node0"},
    {"MASTER_PORT", "29500"},
    {"GROUP_WORLD_SIZE", "1"},
    {"TORCHELASTIC_RESTART_COUNT", "2"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST_CASE("no launcher means a process on its own") {
  const auto alone = read({{"MASTER_ADDR", "x"}, {"SLURM_PROCID", "0"}});
  REQUIRE(text_of(alone) == ": rank 0 of 1");
  REQUIRE_THAT(alone.note, Has("this process trains alone"));
  REQUIRE(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).note.empty());
}

TEST_CASE("torchrun's variables are read") {
  const auto env = read(kTorchrun);
  REQUIRE(
      text_of(env) ==
      "RANK and WORLD_SIZE: rank 1 of 3, local 1, at node0:29500");
  REQUIRE(env.launcher_hosts_store);
  REQUIRE(env.attempt == "ddp/attempt_2");
  // The restart count names no attempt between nodes.
  const auto of_two = read(with(kTorchrun, {{"GROUP_WORLD_SIZE", "2"}}));
  REQUIRE(of_two.attempt == "ddp");
}

TEST_CASE("the program wins over the environment") {
  const auto env = read(
      kTorchrun,
      ProcessGroupOptions()
          .rank(0)
          .world_size(2)
          .master_addr("here")
          .master_port(7));
  REQUIRE_THAT(text_of(env), Has("rank 0 of 2", ", at here:7"));
  REQUIRE_FALSE(env.launcher_hosts_store);
  // The launcher's store has its port at each address of its host.
  const auto place = ProcessGroupOptions().master_addr("10.9.0.1");
  REQUIRE(read(kTorchrun, place).launcher_hosts_store);
  const auto same_port = ProcessGroupOptions(place).master_port(29500);
  REQUIRE(read(kTorchrun, same_port).launcher_hosts_store);
  const auto own_port = ProcessGroupOptions().master_port(7);
  REQUIRE_FALSE(read(kTorchrun, own_port).launcher_hosts_store);
}

TEST_CASE("a variable that is almost one of ddp's is told of") {
  const auto said_of = [](const char* variable) {
    const char* const variables[] = {"PATH=/bin", variable, nullptr};
    return detail::misspelt_variable(variables);
  };
  for (const auto& [wrong, right] :
       {std::pair{"DDP_TIMEOUTS=5", "DDP_TIMEOUT"},
        {"DDP_TIME_OUT=5", "DDP_TIMEOUT"},
        {"DDP_CHECKREPLICA=0", "DDP_CHECK_REPLICAS"},
        {"DDP_DEUBG=info", "DDP_DEBUG"}}) {
    REQUIRE_THAT(
        said_of(wrong),
        Has("ddp does not read it: did you mean " + std::string(right)));
  }
  for (const auto* other :
       {"DDP_TIMEOUT=5", "DDP_EPOCH=1", "DDP_PORT=9", "DEBUG=1"}) {
    REQUIRE(said_of(other).empty());
  }
}

TEST_CASE("a contradiction names the variable and its value") {
  REQUIRE_THAT(
      error(without(kTorchrun, "WORLD_SIZE")),
      Has("WORLD_SIZE is not set, although RANK is"));
  REQUIRE_THAT(
      error(without(kTorchrun, "RANK")),
      Has("RANK is not set, although WORLD_SIZE is"));
  REQUIRE_THAT(
      error(with(kTorchrun, {{"RANK", "3"}})),
      Has("rank 3 is outside the world: WORLD_SIZE is 3"));
  REQUIRE_THAT(error(with(kTorchrun, {{"RANK", "-1"}})), Has("RANK='-1'"));
  for (const char* bad : {"", "two", "2x", " 2", "9999999999999999999"}) {
    REQUIRE_THAT(
        error(with(kTorchrun, {{"WORLD_SIZE", bad}})),
        Has("WORLD_SIZE='" + std::string(bad) + "'"));
  }
  REQUIRE_THAT(
      error(with(kTorchrun, {{"MASTER_PORT", "65536"}})),
      Has("MASTER_PORT='65536'"));
  REQUIRE_THAT(
      error(without(kTorchrun, "MASTER_PORT")), Has("MASTER_PORT is not set"));
  REQUIRE_THAT(
      error(without(kTorchrun, "MASTER_ADDR")), Has("MASTER_ADDR is not set"));
  REQUIRE_THAT(
      error({}, ProcessGroupOptions().rank(2).world_size(2)),
      Has("rank 2 is outside the world"));
}

TEST_CASE("backend, device and timeout come from the environment") {
  const auto options = complete_options(
      {},
      environment_of(
          {{"DDP_BACKEND", "gloo"},
           {"DDP_DEVICE", "cuda:1"},
           {"DDP_TIMEOUT", "1.5"}}));
  REQUIRE(options.backend() == "gloo");
  REQUIRE(options.device() == c10::Device(c10::kCUDA, 1));
  REQUIRE(options.timeout() == std::chrono::milliseconds(1500));
  for (const Variables& bad : std::vector<Variables>{
           {{"DDP_BACKEND", "smoke"}},
           {{"DDP_DEVICE", "toaster"}},
           {{"DDP_DEVICE", "meta"}},
           {{"DDP_TIMEOUT", "soon"}},
           {{"DDP_TIMEOUT", "-1"}},
           {{"DDP_TIMEOUT", ""}},
           {{"DDP_SHARE_GPUS", "yes"}}}) {
    REQUIRE_THROWS_AS(
        complete_options({}, environment_of(bad)), c10::ValueError);
  }
  const auto own = complete_options(
      ProcessGroupOptions().timeout(std::chrono::seconds(60)),
      environment_of({{"DDP_TIMEOUT", "1"}}));
  REQUIRE(own.timeout() == std::chrono::minutes(1));
  REQUIRE(complete_options({}, environment_of({})).share_gpus() == false);
  const Variables share{{"DDP_SHARE_GPUS", "1"}};
  REQUIRE(complete_options({}, environment_of(share)).share_gpus() == true);
  const auto no = ProcessGroupOptions().share_gpus(false);
  REQUIRE(complete_options(no, environment_of(share)).share_gpus() == false);
  const auto mpi = ProcessGroupOptions().backend("mpi");
  REQUIRE(complete_options(mpi, environment_of({})).backend() == "mpi");
}

// The source of this process's rank if there are several.

const Variables kMeeting{{"MASTER_ADDR", "n7"}, {"MASTER_PORT", "2000"}};

TEST_CASE("mpirun's ranks find out where to meet by themselves") {
  const auto env = read(kOpenMpi);
  REQUIRE(text_of(env) == "Open MPI: rank 1 of 2, local 1");
  REQUIRE(env.port_count == 1);
  // mpirun's own host need not be rank 0's.
  const Variables uri{
      {"OMPI_MCA_orte_hnp_uri", "25.0;tcp://10.9.0.1:34439"},
      {"SLURM_LAUNCH_NODE_IPADDR", "10.9.0.1"}};
  REQUIRE(read(with(kOpenMpi, uri)).master_addr.empty());
  REQUIRE(
      text_of(read(with(kOpenMpi, kMeeting))) ==
      "Open MPI: rank 1 of 2, local 1, at n7:2000");
  REQUIRE_THAT(
      error(with(kOpenMpi, {{"MASTER_ADDR", "n7"}})),
      Has("MASTER_PORT is not set"));
}

TEST_CASE("a Slurm step meets on its first host") {
  for (int rank = 0; rank < 4; ++rank) {
    const auto env = read(slurm_task(rank));
    const auto local = std::to_string(rank % 2);
    REQUIRE(
        text_of(env) ==
        "Slurm: rank " + std::to_string(rank) + " of 4, local " + local +
            ", at n0:" + std::to_string(61440 + 14 * 8));
    REQUIRE(env.port_count == 8);
    REQUIRE(env.attempt == "ddp/slurm_14_0");
  }
  const auto next = read(with(slurm_task(0), {{"SLURM_STEP_ID", "1"}}));
  REQUIRE(next.attempt != read(slurm_task(0)).attempt);
  const auto high = read(with(slurm_task(0), {{"SLURM_JOB_ID", "4294967295"}}));
  REQUIRE(high.master_port >= 61440);
  REQUIRE(high.master_port + high.port_count <= 65536);
  const auto told = read(with(slurm_task(2), kMeeting));
  REQUIRE(told.master_addr == "n7");
  REQUIRE(told.port_count == 1);
  REQUIRE(
      read(with(slurm_task(1), {{"SLURM_STEP_NUM_NODES", "1"}})).master_addr ==
      "127.0.0.1");
  REQUIRE_THAT(
      error(without(slurm_task(1), "SLURM_STEP_NODELIST")),
      Has("SLURM_STEP_NODELIST is not set"));
}

TEST_CASE("a script of sbatch, or salloc's shell, is a process on its own") {
  REQUIRE(
      text_of(read(without(slurm_task(0), "SLURM_STEP_ID"))) ==
      ": rank 0 of 1");
  const auto shell = with(
      slurm_task(0),
      {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  REQUIRE(read(shell).world_size == 1);
  // As it is after salloc without --ntasks.
  REQUIRE(read(without(shell, "SLURM_NTASKS")).world_size == 1);
}

TEST_CASE("mpirun within Slurm is mpirun") {
  // All its processes inherit the variables of the script, or of one task.
  REQUIRE(
      text_of(read(with(slurm_task(0), kOpenMpi))) ==
      "Open MPI: rank 1 of 2, local 1");
}

TEST_CASE("torchrun within mpirun or srun is torchrun") {
  for (const auto& outer : {kOpenMpi, slurm_task(3)}) {
    const auto env = read(with(with(outer, kTorchrunWorker), {{"RANK", "0"}}));
    REQUIRE(
        text_of(env) ==
        "RANK and WORLD_SIZE: rank 0 of 2, local 1, at 127.0.0.1:29500");
    REQUIRE(env.launcher_hosts_store);
    REQUIRE(env.port_count == 1);
  }
  const auto by_program = read(
      with(kOpenMpi, {{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"LOCAL_RANK", "0"}}),
      ProcessGroupOptions().master_addr("a").master_port(1));
  REQUIRE(by_program.rank == 5);
}

TEST_CASE("variables that were left in the shell are not taken for mpirun's") {
  const Variables left{{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  for (const auto& outer : {kOpenMpi, with(kOpenMpi, kMeeting)}) {
    REQUIRE_THAT(
        error(with(outer, left)),
        Has("RANK=0 WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=1 "
            "OMPI_COMM_WORLD_SIZE=2 contradict each other",
            "unset RANK and WORLD_SIZE to use Open MPI"));
  }
  REQUIRE_THAT(
      error(with(with(slurm_task(3), left), kMeeting)),
      Has("SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4"));
  // torchrun's variables without an address are incomplete, and contradict Open
  // MPI's.
  REQUIRE_THAT(
      error(with(kOpenMpi, with(left, {{"LOCAL_RANK", "0"}}))),
      Has("contradict each other"));
  REQUIRE(
      text_of(read(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}))) ==
      "Open MPI: rank 1 of 2, local 1");
  const auto own = read(
      with(with(kOpenMpi, left), kMeeting),
      ProcessGroupOptions().rank(2).world_size(3));
  REQUIRE(own.rank == 2);
  REQUIRE(own.world_size == 3);
}

TEST_CASE("ranks that a world of one in the shell parts are told so") {
  const auto alone =
      with(kTorchrunWorker, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  const auto first = with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}});
  const auto env = read(with(first, alone));
  REQUIRE(env.world_size == 1);
  REQUIRE_THAT(
      env.note,
      Has("WORLD_SIZE=1",
          "takes precedence over OMPI_COMM_WORLD_SIZE=2",
          "to use Open MPI"));
  REQUIRE_THAT(
      read(with(slurm_task(0), alone)).note, Has("SLURM_STEP_NUM_TASKS=4"));
  REQUIRE(read(with(kOpenMpi, alone)).note.empty()); // rank 0 reports it
  REQUIRE(read(with(first, kTorchrunWorker)).note.empty());
  REQUIRE(read(alone).note.empty());
  const auto by_program = ProcessGroupOptions().rank(0).world_size(1);
  REQUIRE(read(with(first, alone), by_program).note.empty());
  REQUIRE(
      read(with(without(slurm_task(0), "SLURM_STEP_ID"), alone)).note.empty());
}

TEST_CASE("ranks that the program numbers need its word on where to meet") {
  const auto options = ProcessGroupOptions().rank(0).world_size(2);
  REQUIRE_THAT(error(kOpenMpi, options), Has("MASTER_ADDR is not set"));
  REQUIRE(read(kOpenMpi, ProcessGroupOptions().rank(1).world_size(2))
              .master_addr.empty());
}

TEST_CASE("half of a launcher's variables names the other half") {
  for (const char* missing : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    REQUIRE_THAT(
        error(without(kOpenMpi, missing)),
        Has(std::string(missing) + " is not set, although"));
  }
  REQUIRE_THAT(
      error(without(slurm_task(1), "SLURM_STEP_NUM_TASKS")),
      Has("SLURM_STEP_NUM_TASKS is not set, although SLURM_PROCID is"));
  REQUIRE_THAT(
      error(with(kOpenMpi, {{"RANK", "1"}})),
      Has("WORLD_SIZE is not set, although RANK is"));
}

TEST_CASE("other launchers' variables are read") {
  const std::map<std::string, Variables> launchers{
      {"MPICH",
       {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}}},
      {"MVAPICH",
       {{"MV2_COMM_WORLD_RANK", "2"},
        {"MV2_COMM_WORLD_SIZE", "3"},
        {"MV2_COMM_WORLD_LOCAL_RANK", "1"}}},
      {"PALS",
       {{"PALS_RANKID", "2"},
        {"PMI_RANK", "2"},
        {"PMI_SIZE", "3"},
        {"PALS_LOCAL_RANKID", "1"}}},
      {"Flux",
       {{"FLUX_TASK_RANK", "2"},
        {"FLUX_JOB_SIZE", "3"},
        {"FLUX_TASK_LOCAL_ID", "1"}}}};
  for (const auto& [name, variables] : launchers) {
    REQUIRE(text_of(read(variables)) == name + ": rank 2 of 3, local 1");
  }
  // srun --mpi=pmi2 is Slurm.
  const Variables pmi2{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}};
  REQUIRE(read(with(slurm_task(3), pmi2)).source == "Slurm");
  REQUIRE_THAT(
      error(with(launchers.at("MPICH"), kOpenMpi)),
      Has("PMI_RANK=2 PMI_SIZE=3 and OMPI_COMM_WORLD_RANK=1"));
}

TEST_CASE("PMIx is asked how many there are") {
  const Variables pmix{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "job"}};
  const auto server = [] { return std::optional(PmixJob{2, 3, 1, 2}); };
  for (const auto& variables : {pmix, with(slurm_task(0), pmix)}) {
    REQUIRE(
        text_of(read(variables, {}, server)) == "PMIx: rank 2 of 3, local 1");
  }
  REQUIRE_THAT(error(pmix), Has("PMIX_RANK is set, but"));
  REQUIRE(read(with(slurm_task(0), pmix)).source == "Slurm");
  // Open MPI provides everything.
  const auto unasked = []() -> std::optional<PmixJob> {
    throw std::runtime_error("asked");
  };
  REQUIRE(read(kOpenMpi, {}, unasked).source == "Open MPI");
}

TEST_CASE("RANK and WORLD_SIZE alone serve where nothing else does") {
  REQUIRE(
      text_of(read(with(kMeeting, {{"RANK", "1"}, {"WORLD_SIZE", "3"}}))) ==
      "RANK and WORLD_SIZE: rank 1 of 3, at n7:2000");
}

} // namespace ddp::test::environment_test
