#include <tests/support/launch_environments.h>

#include <ddp/environment/misspelt_variables.h>

namespace ddp::test::environment_test {

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
}

TEST_CASE("the restart count names no attempt between nodes") {
  const auto env = read(with(kTorchrun, {{"GROUP_WORLD_SIZE", "2"}}));
  REQUIRE(env.attempt == "ddp");
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
        said_of(wrong), Has("nothing reads it: is it " + std::string(right)));
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

} // namespace ddp::test::environment_test
