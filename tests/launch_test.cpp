// The same program under every way to start it.

#include <tests/support/catch.h>
#include <tests/support/free_port.h>
#include <tests/support/skip.h>

namespace ddp::test::launch_test {

constexpr auto kLong = std::chrono::seconds(180);
constexpr const char* kData = "/usr/share/datasets/fashion-mnist";

std::vector<std::string> operator+(
    std::vector<std::string> list,
    const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

std::vector<std::string> program(const TemporaryFolder& folder) {
  return {
      variable("DDP_EXAMPLES") + "/fashion_mnist",
      "--epochs",
      "1",
      "--train-images",
      "600",
      "--checkpoint",
      folder / "net.safetensors"};
}

const Environment kPlain{{"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}};

void need_data() {
  if (!std::filesystem::exists(kData)) {
    skip(std::string("there is no data in ") + kData);
  }
}

/// The hash of the trained parameters, from the program's output.
std::string hash(const Outcome& outcome) {
  const auto output = output_of(outcome);
  const auto at = output.find("hash ");
  REQUIRE(at != std::string::npos);
  return output.substr(at + 5, 16);
}

std::string trained_by(const std::vector<std::string>& launcher) {
  const TemporaryFolder folder;
  return hash(run(Command{launcher + program(folder), kPlain}, kLong));
}

std::vector<Outcome> by_hand(int size) {
  const TemporaryFolder folder;
  const auto port = std::to_string(free_port());
  std::vector<Command> commands;
  for (int rank = 0; rank < size; ++rank) {
    auto environment = kPlain;
    environment["RANK"] = std::to_string(rank);
    environment["WORLD_SIZE"] = std::to_string(size);
    environment["MASTER_ADDR"] = "127.0.0.1";
    environment["MASTER_PORT"] = port;
    commands.push_back({program(folder), environment});
  }
  return run(commands, kLong);
}

TEST_CASE("ddprun and plain variables give the same training") {
  need_data();
  const auto expected =
      trained_by({variable("DDPRUN"), "--nproc-per-node", "3"});
  const auto outcomes = by_hand(3);
  REQUIRE(hash(outcomes[0]) == expected);
  REQUIRE(outcomes[1].exit_code == 0);
}

TEST_CASE("ddprun and torchrun give the same training") {
  need_data();
  const auto torchrun =
      std::filesystem::path(python_with_torch()).parent_path() / "torchrun";
  const auto expected =
      trained_by({variable("DDPRUN"), "--nproc-per-node", "3"});
  REQUIRE(
      trained_by({torchrun.string(), "--no-python", "--nproc-per-node", "3"}) ==
      expected);
  REQUIRE(
      trained_by(
          {torchrun.string(),
           "--standalone",
           "--no-python",
           "--nproc-per-node",
           "3"}) == expected);
}

TEST_CASE("alone, the same program is a group of one") {
  need_data();
  REQUIRE(
      trained_by({"env"}) ==
      trained_by({variable("DDPRUN"), "--nproc-per-node", "1"}));
}

TEST_CASE("torchrun's restart starts a clean attempt") {
  // torchrun keeps one store for all attempts; most of its restarts of gloo
  // programs fail on the keys of the attempt before.
  const auto torchrun =
      std::filesystem::path(python_with_torch()).parent_path() / "torchrun";
  const auto port = std::to_string(free_port());
  for (const auto& standalone :
       {std::string("--standalone"), "--master-port=" + port}) {
    const auto outcome = run(
        Command{
            {torchrun.string(),
             standalone,
             "--no-python",
             "--max-restarts=2",
             "--nproc-per-node=3",
             test::program("failing_attempts")},
            kPlain},
        kLong);
    REQUIRE_THAT(output_of(outcome), Has("attempt 2: sum 3"));
  }
}

FOLDER_TEST("an unlucky start of the example is one clear line") {
  const auto outcome = run(
      Command{
          program(folder) + std::vector<std::string>{"--data", "/no/where"},
          kPlain},
      kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.output, Has("apt-get install dataset-fashion-mnist"));
}

} // namespace ddp::test::launch_test
