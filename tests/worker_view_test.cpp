// The environment of a program under ddprun and under torchrun.
#include <tests/support/catch.h>
#include <tests/support/skip.h>

namespace ddp::test::worker_view_test {

constexpr int kRanks = 3;

/// The variables that `launcher ... program` sets or changes for local rank 1.
Environment added_by(const std::vector<std::string>& launcher) {
  // Python sets LC_CTYPE in the C locale.
  Command command{
      launcher,
      {{"OMP_NUM_THREADS", ""}, {"DDP_TTY", ""}, {"LC_ALL", "C.UTF-8"}}};
  command.arguments.insert(
      command.arguments.end(),
      {"--no-python",
       "--nproc-per-node",
       std::to_string(kRanks),
       "sh",
       "-c",
       "[ $LOCAL_RANK != 1 ] || env | sed 's/^/is /'"});
  Environment environment;
  std::istringstream lines(output_of(run(command, kLong)));
  for (std::string line; std::getline(lines, line);) {
    const auto start = line.find("is ");
    const auto equals = line.find('=');
    if (start == std::string::npos || equals == std::string::npos) {
      continue;
    }
    const auto name = line.substr(start + 3, equals - start - 3);
    const auto value = line.substr(equals + 1);
    const bool inherited = name != "OMP_NUM_THREADS" &&
        variable(name.c_str()) == value && name.rfind("TORCH", 0) != 0;
    if (!inherited && name != "_" && name != "SHLVL" && name != "PWD" &&
        name != "LC_ALL") {
      environment[name] = value;
    }
  }
  return environment;
}

std::string names(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) {
    text += name + " ";
  }
  return text;
}

TEST_CASE("ranks see under ddprun what they see under torchrun") {
  const auto python = python_with_torch();
  const auto torchrun =
      std::filesystem::path(python).parent_path() / "torchrun";
  auto theirs = added_by({torchrun.string(), "--standalone"});
  auto ours = added_by({variable("DDPRUN"), "--standalone"});
  // docs/launching.md has this list.
  REQUIRE(ours.erase("DDP_HEARTBEAT_FD") == 1);
  for (const char* differs :
       {"MASTER_ADDR", // the host's name
        "MASTER_PORT",
        "OMP_NUM_THREADS", // a share instead of 1
        "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_RUN_ID"}) {
    CAPTURE(differs);
    REQUIRE(ours.erase(differs) == 1);
    REQUIRE(theirs.erase(differs) == 1);
  }
  REQUIRE(names(ours) == names(theirs));
  REQUIRE(ours == theirs);
  REQUIRE(ours.at("RANK") == "1");
}

} // namespace ddp::test::worker_view_test
