// The same program under every way to start it.

#include <tests/support/free_port.h>
#include <tests/support/launched.h>
#include <tests/support/ranks.h>

namespace ddp::test::launch_test {

constexpr auto kLong = std::chrono::seconds(180);
constexpr const char* kData = "/usr/share/datasets/fashion-mnist";

Words operator+(Words list, const Words& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

Words torchrun() {
  const std::filesystem::path python = python_with_torch();
  return {python.parent_path() / "torchrun", "--no-python"};
}

Words program(const TemporaryFolder& folder) {
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

std::string trained_by(const Words& launcher) {
  const TemporaryFolder folder;
  return hash(run(Command{launcher + program(folder), kPlain}, kLong));
}

std::vector<Outcome> by_hand(int size) {
  const TemporaryFolder folder;
  std::vector<Command> commands;
  for (const auto& environment : environments_of_ranks(size, kPlain)) {
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
  const Words three{"--nproc-per-node", "3"};
  const auto expected = trained_by(torchrun() + three);
  REQUIRE(trained_by(Words{variable("DDPRUN")} + three) == expected);
  REQUIRE(trained_by(torchrun() + Words{"--standalone"} + three) == expected);
}

TEST_CASE("alone, the same program is a group of one") {
  need_data();
  REQUIRE(
      trained_by({"env"}) ==
      trained_by({variable("DDPRUN"), "--nproc-per-node", "1"}));
}

TEST_CASE("torchrun's restart starts a clean attempt") {
  // torchrun keeps one store for all attempts; most of its restarts of gloo
  // programs fail on the keys of the previous attempt.
  const auto port = std::to_string(free_port());
  for (const auto& standalone :
       {std::string("--standalone"), "--master-port=" + port}) {
    const Words program{
        "--max-restarts=2",
        "--nproc-per-node=3",
        test::program("failing_attempts")};
    const Command command{torchrun() + Words{standalone} + program, kPlain};
    REQUIRE_THAT(output_of(command, kLong), Has("attempt 2: sum 3"));
  }
}

FOLDER_TEST("an unlucky start of the example is one clear line") {
  const Command command{program(folder) + Words{"--data", "/no/where"}, kPlain};
  REQUIRE_THAT(
      output_of(run(command, kLong), 1),
      Has("apt-get install dataset-fashion-mnist"));
}

} // namespace ddp::test::launch_test
