#include <tests/support/catch.h>

#include <ddp/environment.h>

#include <map>

using ddp::ProcessGroupOptions;
using Variables = std::map<std::string, std::string>;

namespace {

ddp::EnvironmentLookup lookup(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt
                                    : std::optional(found->second);
  };
}

ddp::LaunchEnvironment read(
    const Variables& variables,
    const ProcessGroupOptions& options = {}) {
  return ddp::read_launch_environment(options, lookup(variables));
}

std::string error(
    const Variables& variables,
    const ProcessGroupOptions& options = {}) {
  try {
    read(variables, options);
  } catch (const c10::ValueError& e) {
    return e.what_without_backtrace();
  }
  return "no error";
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

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

} // namespace

TEST_CASE("no launcher means a process on its own") {
  const auto alone = read({{"MASTER_ADDR", "x"}, {"SLURM_PROCID", "0"}});
  REQUIRE(alone.rank == 0);
  REQUIRE(alone.world_size == 1);
}

TEST_CASE("torchrun's variables are read") {
  const auto env = read(kTorchrun);
  REQUIRE(env.rank == 1);
  REQUIRE(env.world_size == 3);
  REQUIRE(env.local_rank == 1);
  REQUIRE(env.master_addr == "node0");
  REQUIRE(env.master_port == 29500);
  REQUIRE(env.launcher_hosts_store);
  REQUIRE(env.attempt == "ddp/attempt_2");
}

TEST_CASE("the restart count names no attempt between nodes") {
  const auto env = read(with(kTorchrun, {{"GROUP_WORLD_SIZE", "2"}}));
  REQUIRE(env.attempt == "ddp");
}

TEST_CASE("only rank 0 takes the store's descriptor") {
  REQUIRE(!read(with(kTorchrun, {{"DDP_STORE_FD", "5"}})).store_descriptor);
  const auto zero = with(kTorchrun, {{"DDP_STORE_FD", "5"}, {"RANK", "0"}});
  REQUIRE(read(zero).store_descriptor == 5);
}

TEST_CASE("mpirun's and srun's variables are read") {
  const Variables meeting{{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "2000"}};
  const auto mpi = read(with(
      meeting,
      {{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
       {"SLURM_PROCID", "0"},
       {"SLURM_NTASKS", "1"},
       {"SLURM_STEP_ID", "0"}}));
  REQUIRE(mpi.rank == 2);
  REQUIRE(mpi.local_rank == 0);
  const auto slurm = read(with(
      meeting,
      {{"SLURM_PROCID", "3"},
       {"SLURM_NTASKS", "4"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_STEP_ID", "0"}}));
  REQUIRE(slurm.rank == 3);
  REQUIRE(slurm.local_rank == 1);
}

TEST_CASE("the program wins over the environment") {
  const auto env = read(
      kTorchrun,
      ProcessGroupOptions()
          .rank(0)
          .world_size(2)
          .master_addr("here")
          .master_port(7));
  REQUIRE(env.rank == 0);
  REQUIRE(env.world_size == 2);
  REQUIRE(env.master_addr == "here");
  REQUIRE(env.master_port == 7);
}

TEST_CASE("a contradiction names the variable and its value") {
  REQUIRE_THAT(
      error(without(kTorchrun, "WORLD_SIZE")),
      ContainsSubstring("WORLD_SIZE is not set, although RANK is"));
  REQUIRE_THAT(
      error(without(kTorchrun, "RANK")),
      ContainsSubstring("RANK is not set, although WORLD_SIZE is"));
  REQUIRE_THAT(
      error(with(kTorchrun, {{"RANK", "3"}})),
      ContainsSubstring("rank 3 is outside the world: WORLD_SIZE is 3"));
  REQUIRE_THAT(
      error(with(kTorchrun, {{"RANK", "-1"}})), ContainsSubstring("RANK='-1'"));
  for (const char* bad : {"", "two", "2x", " 2", "9999999999999999999"}) {
    REQUIRE_THAT(
        error(with(kTorchrun, {{"WORLD_SIZE", bad}})),
        ContainsSubstring("WORLD_SIZE='" + std::string(bad) + "'"));
  }
  REQUIRE_THAT(
      error(with(kTorchrun, {{"MASTER_PORT", "65536"}})),
      ContainsSubstring("MASTER_PORT='65536'"));
  REQUIRE_THAT(
      error(without(kTorchrun, "MASTER_PORT")),
      ContainsSubstring("MASTER_PORT is not set"));
  REQUIRE_THAT(
      error(without(kTorchrun, "MASTER_ADDR")),
      ContainsSubstring("MASTER_ADDR is not set"));
  REQUIRE_THAT(
      error({}, ProcessGroupOptions().rank(2).world_size(2)),
      ContainsSubstring("rank 2 is outside the world"));
}

TEST_CASE("backend, device and timeout come from the environment") {
  const auto options = ddp::complete_options(
      {},
      lookup(
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
           {{"DDP_TIMEOUT", ""}}}) {
    REQUIRE_THROWS_AS(ddp::complete_options({}, lookup(bad)), c10::ValueError);
  }
  const auto own = ddp::complete_options(
      ProcessGroupOptions().timeout(std::chrono::seconds(60)),
      lookup({{"DDP_TIMEOUT", "1"}}));
  REQUIRE(own.timeout() == std::chrono::minutes(1));
}
