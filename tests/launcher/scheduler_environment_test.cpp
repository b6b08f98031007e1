// Detection of the scheduler that started ddprun. The environments are from
// real launches.
#include <tests/support/catch_plain.h>

#include <limits>

#include <common/scheduler/scheduler_environment.h>
#include <common/scheduler/slurm_tasks.h>
#include <tests/launcher/option_parsing.h>

namespace ddp::test::scheduler_environment_test {

const Variables kSlurmTask = slurm_task(3);

// The sbatch script of that job.
Variables script() {
  Variables variables = with(kSlurmTask, {{"SLURM_PROCID", "0"}});
  for (auto it = variables.begin(); it != variables.end();) {
    it = it->first.rfind("SLURM_STEP", 0) == 0 ? variables.erase(it) : ++it;
  }
  return variables;
}

// The error or the note, as for `ddprun ./train`.
std::string verdict(const Variables& variables) {
  const auto launcher = detect_scheduler(environment_of(variables));
  if (!launcher) {
    return "none";
  }
  std::string note;
  const auto error =
      launch_error_of([&] { note = check_scheduler(*launcher, "./train"); });
  CHECK(error.find('\n') == std::string::npos);
  return error == "no error" ? note : error;
}

const Variables kOneTask = {
    {"SLURM_STEP_NUM_TASKS", "1"},
    {"SLURM_STEP_NUM_NODES", "1"},
    {"SLURM_NODEID", "0"},
    {"SLURM_STEP_TASKS_PER_NODE", "1"}};

TEST_CASE("a user's shell is no scheduler", "[unit]") {
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
      Has("2: mpirun started ddprun as one of 2 tasks on "
          "this node") &&
          Has("(mpirun -n N ./train)"));
  CHECK_THAT(
      verdict(kSlurmTask),
      Has("2: srun started ddprun as one of 2 tasks on "
          "this node") &&
          Has("(srun --ntasks-per-node=N ./train)") &&
          Has("--ntasks-per-node=1"));
  CHECK_THAT(
      verdict(
          {{"PMI_RANK", "1"},
           {"PMI_SIZE", "6"},
           {"MPI_LOCALRANKID", "1"},
           {"MPI_LOCALNRANKS", "3"}}),
      Has("2: mpiexec started ddprun as one of 3"));
  CHECK_THAT(
      verdict({{"PALS_RANKID", "1"}, {"PMI_SIZE", "6"}}),
      Has("2: PALS's mpiexec started ddprun as one of 6"));
  CHECK_THAT(
      verdict(
          {{"PALS_RANKID", "1"}, {"PMI_SIZE", "6"}, {"PALS_LOCAL_SIZE", "3"}}),
      Has("2: PALS's mpiexec started ddprun as one of 3"));
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
  CHECK_THAT( // the node of mpirun itself has none
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
          {{"PALS_RANKID", "1"},
           {"PMI_SIZE", "2"},
           {"PALS_LOCAL_SIZE", "1"}}) == "");
  CHECK(
      verdict(
          {{"RANK", "0"},
           {"WORLD_SIZE", "1"},
           {"MASTER_ADDR", "localhost"},
           {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}) == "");
}

TEST_CASE("MPI comes before the Slurm step it runs in", "[unit]") {
  Variables both = kSlurmTask; // from the daemon that mpirun started
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  both["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  both["OMPI_COMM_WORLD_SIZE"] = "1";
  CHECK(verdict(both) == "");
}

TEST_CASE("a script of Slurm is no step", "[unit]") {
  CHECK_THAT(verdict(script()), Has("2 nodes, of which only this one is used"));
  for (const char* id : {"4294967290", "4294967291", "4294967292"}) {
    CHECK_THAT(
        verdict(with(script(), {{"SLURM_STEP_ID", id}})),
        Has("only this one is used"));
  }
  CHECK(verdict(with(script(), {{"SLURM_JOB_NUM_NODES", "1"}})) == "");
}

TEST_CASE("ranks do not inherit which scheduler's task they are", "[unit]") {
  for (const auto* variables : {&kOpenMpi, &kSlurmTask}) {
    for (const auto& [name, value] : *variables) {
      const bool of_job = name.rfind("SLURM_JOB_", 0) == 0 ||
          name == "SLURM_NNODES" || name == "SLURMD_NODENAME" ||
          name == "SLURM_LAUNCH_NODE_IPADDR";
      CAPTURE(name);
      CHECK(describes_scheduler_task(name) == !of_job);
    }
  }
  for (const std::string& name :
       words("OMPI_MCA_pmix OMPI_MCA_ess_base_vpid OMPI_MCA_orte_ess_num_procs "
             "OMPI_MCA_orte_launch OMPI_UNIVERSE_SIZE PMIX_SERVER_URI41 PMI_FD "
             "MPI_LOCALNRANKS MV2_COMM_WORLD_RANK SLURM_GTIDS")) {
    CAPTURE(name);
    CHECK(describes_scheduler_task(name));
  }
  for (const std::string& name :
       words("OMPI_MCA_btl OMPI_MCA_orte_tmpdir_base PMIX_MCA_gds "
             "SLURM_JOB_NODELIST SLURM_CPUS_ON_NODE PATH RANK")) {
    CAPTURE(name);
    CHECK_FALSE(describes_scheduler_task(name));
  }
}

// Data of schedulers about the nodes, on each of which they start one ddprun.

// srun -N2 --ntasks-per-node=1, the second node.
const Variables kSlurmNode = with(
    kSlurmTask,
    {{"SLURM_LOCALID", "0"},
     {"SLURM_PROCID", "1"},
     {"SLURM_STEP_NUM_TASKS", "2"},
     {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});

// mpirun --host node0:1,node1:1, the second node.
const Variables kMpiNode = with(
    kOpenMpi,
    {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
     {"OMPI_COMM_WORLD_NODE_RANK", "0"},
     {"OMPI_MCA_orte_num_nodes", "2"},
     {"OMPI_MCA_orte_hnp_uri", "3864723456.0;tcp://10.9.0.9:34439"}});

// The third of four pods of a PyTorchJob.
const Variables kPod = {
    {"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
    {"MASTER_ADDR", "job-master-0"},
    {"MASTER_PORT", "23456"},
    {"RANK", "2"},
    {"WORLD_SIZE", "4"}};

// One of an indexed job.
const Variables kIndexedPod = {
    {"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
    {"MASTER_ADDR", "job-0.job"},
    {"JOB_COMPLETION_INDEX", "1"}};

LaunchOptions under(const Variables& variables, Texts arguments = {}) {
  arguments.emplace_back("./train");
  return parse(arguments, variables);
}

void check_nodes(
    const LaunchOptions& options,
    int count,
    int rank,
    const std::string& host,
    int port) {
  CHECK(options.nodes.least == count);
  CHECK(options.nodes.most == count);
  CHECK(options.nodes.rank == rank);
  CHECK(options.nodes.host == host);
  CHECK(options.nodes.port == port);
  CHECK(options.nodes.hosts_log == (rank == 0));
  CHECK(options.nodes.token.empty());
}

TEST_CASE("srun says which nodes there are", "[unit]") {
  const LaunchOptions second = under(kSlurmNode);
  check_nodes(second, 2, 1, "n0", 61440 + 14 * 8);
  CHECK(second.run_id == "14.0");
  check_nodes(
      under(with(
          kSlurmNode,
          {{"SLURM_NODEID", "0"},
           {"SLURM_STEP_ID", "2"},
           {"SLURM_STEP_NODELIST", "m[07-09,11]-x"}})),
      2,
      0,
      "m07-x",
      61440 + 14 * 8 + 2);
  Variables no_list = with(kSlurmNode, {{"SLURM_JOB_NODELIST", "k3,k4"}});
  no_list.erase("SLURM_STEP_NODELIST");
  CHECK(under(no_list).nodes.host == "k3");
}

TEST_CASE("mpirun says which nodes there are, but not where", "[unit]") {
  CHECK_THAT(
      usage_error_of({"./train"}, kMpiNode),
      Has("--rdzv-endpoint HOST:PORT, or MASTER_ADDR=HOST") &&
          Has("mpirun does not provide"));
  const LaunchOptions told = under(with(kMpiNode, {{"MASTER_ADDR", "node0"}}));
  check_nodes(told, 2, 1, "node0", 29500);
  CHECK(told.run_id == "253231105");
  CHECK(
      under(with(kMpiNode, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "5"}}))
          .nodes.port == 5);
  const Variables hydra = {
      {"PMI_RANK", "2"},
      {"PMI_SIZE", "3"},
      {"MPI_LOCALRANKID", "0"},
      {"MPI_LOCALNRANKS", "1"},
      {"MASTER_ADDR", "a"}};
  check_nodes(under(hydra), 3, 2, "a", 29500);
}

TEST_CASE("pods say which nodes there are", "[unit]") {
  check_nodes(under(kPod), 4, 2, "job-master-0", 23456);
  const LaunchOptions alone = under(kIndexedPod);
  CHECK_FALSE(alone.nodes.several());
  REQUIRE(alone.notes.size() == 1);
  CHECK_THAT(alone.notes[0], Has("without --nnodes"));
  check_nodes(under(kIndexedPod, {"--nnodes=3"}), 3, 1, "job-0.job", 29500);
  check_nodes(
      under(with(kIndexedPod, {{"WORLD_SIZE", "5"}})),
      5,
      1,
      "job-0.job",
      29500);
  // The training operator's elastic job.
  const NodeOptions elastic = under(with(
                                        kPod,
                                        {{"PET_NNODES", "1:4"},
                                         {"PET_RDZV_BACKEND", "c10d"},
                                         {"PET_RDZV_ENDPOINT", "w-0:23456"}}))
                                  .nodes;
  CHECK(elastic.least == 1);
  CHECK(elastic.host == "w-0");
  CHECK_FALSE(elastic.hosts_log.has_value());
}

TEST_CASE("options win over the scheduler", "[unit]") {
  CHECK_FALSE(under(kSlurmNode, {"--nnodes=1"}).nodes.several());
  CHECK_FALSE(under(kSlurmNode, {"--standalone"}).nodes.several());
  const NodeOptions elastic = under(kSlurmNode, {"--nnodes=1:2"}).nodes;
  CHECK(elastic.least == 1);
  CHECK(elastic.host == "n0");
  CHECK(elastic.hosts_log == false);
  const NodeOptions other =
      under(kSlurmNode, {"--rdzv-endpoint=m:5", "--node-rank=0"}).nodes;
  CHECK(other.most == 2);
  CHECK(other.host == "m");
  CHECK(other.rank == 0);
  CHECK_FALSE(other.hosts_log.has_value());
  CHECK(under(kSlurmNode, {"--rdzv-id=mine"}).run_id == "mine");
  CHECK(under(kSlurmNode, {"--master-addr=m"}).nodes.hosts_log == false);
  CHECK(under(with(kSlurmNode, {{"DDP_TOKEN", "s"}})).nodes.token == "s");
  check_refused(
      "--rdzv-backend=etcd ./train",
      "the rendezvous endpoint is not set",
      kSlurmNode);
  CHECK_THAT(
      usage_error_of(
          {"--nnodes=2", "./train"}, with(kSlurmNode, {{"SLURM_NODEID", "2"}})),
      Has("node 2 of srun,") && Has("--nnodes"));
}

TEST_CASE("tasks that are not one per node are no nodes", "[unit]") {
  for (const Variables& variables :
       {kSlurmTask,
        kOpenMpi,
        with(kSlurmNode, {{"SLURM_STEP_NUM_TASKS", "3"}}),
        with(kPod, {{"WORLD_SIZE", "1"}, {"RANK", "0"}}),
        with(kPod, {{"LOCAL_RANK", "0"}}),
        with(kSlurmNode, {{"SLURM_STEP_ID", "4294967291"}})}) {
    CHECK_FALSE(under(variables).nodes.several());
  }
}

TEST_CASE("Slurm's host lists are read", "[unit]") {
  CHECK(first_slurm_host("n[001-003,7],m1") == "n001");
  CHECK(first_slurm_host("n[7,9-12]-ib") == "n7-ib");
  CHECK(first_slurm_host("m1,n[0-1]") == "m1");
  CHECK(first_slurm_host("single") == "single");
  CHECK(first_slurm_host("rack[2-3]node[04-09].x") == "rack2node04.x");
  CHECK(first_slurm_host("n[5]") == "n5");
  CHECK(first_slurm_host("") == "");
  CHECK(
      slurm_hosts("n[008-010,3],m1,r[1-2]n[4,6].x", 20) ==
      words("n008 n009 n010 n3 m1 r1n4.x r1n6.x r2n4.x r2n6.x"));
  CHECK(slurm_hosts("n[1-1000000000]", 2) == Texts{"n1", "n2"});
  CHECK(
      slurm_hosts("n[9223372036854775806-9223372036854775807]", 3).size() < 3);
  std::string pairs; // 2^64 hosts
  for (int i = 0; i < 64; ++i) {
    pairs += "[1-2]";
  }
  CHECK(slurm_hosts(pairs, 2).size() == 2);
}

TEST_CASE("Slurm's numbers that are too large are harmless", "[unit]") {
  constexpr auto most = std::numeric_limits<int64_t>::max();
  CHECK(slurm_port(most, most) >= 61440);
  CHECK(slurm_port(14, 3) == 61440 + 14 * kSlurmPorts + 3);
  CHECK(slurm_tasks_on_node("1(x-2147483648),7", 3) == 0);
}

} // namespace ddp::test::scheduler_environment_test
