// What ddprun says of ranks that use ddp and fail.
#include <tests/support/launched.h>

#include <nlohmann/json.hpp>

namespace ddp::test::launched_failures_test {

using nlohmann::json;

constexpr int kRanks = 4;

struct Told {
  Outcome outcome;
  json report;
};

Told told_of(const std::string& misbehaviour, Words options = {}) {
  const TemporaryFolder folder;
  const auto report = folder / "report.json";
  options.insert(options.end(), {"--report", report});
  Told told;
  told.outcome =
      run(with_ddprun(
              kRanks,
              {program("misbehaving"), misbehaviour, folder.path()},
              options),
          kLong);
  UNSCOPED_INFO(told.outcome.output);
  std::ifstream file(report);
  told.report = json::parse(file);
  return told;
}

TEST_CASE("a crash is told with its stack") {
  const auto told = told_of("crash");
  REQUIRE(told.outcome.exit_code == 139);
  REQUIRE_THAT(
      told.outcome.output,
      Has("ddprun: rank 1 (pid ",
          ") was killed by signal 11",
          "  reason: Signal 11 (Segmentation fault)",
          "misbehaving::lose_the_way()+0x",
          "misbehaving::misbehave("));
  REQUIRE(told.report["root"] == 1);
  REQUIRE(told.report["exit_code"] == 139);
}

TEST_CASE("an exception is told, and not those that follow from it") {
  const auto told = told_of("throw");
  REQUIRE(told.outcome.exit_code == 134);
  REQUIRE_THAT(
      told.outcome.output,
      Has("ddprun: rank 1 (pid ",
          "  reason: std::runtime_error: rank 1 has had enough\n"));
  REQUIRE(told.report["root"] == 1);
  REQUIRE(told.report["ranks"][1]["consequence"] == false);
}

TEST_CASE("ranks that catch what another did to them are not blamed") {
  const auto told = told_of("catch");
  REQUIRE(told.outcome.exit_code == 1);
  REQUIRE(told.report["root"] == 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(rank);
    REQUIRE(told.report["ranks"][rank]["consequence"] == (rank != 1));
  }
  REQUIRE_THAT(told.outcome.output, Has("ddprun: rank 1 "));
  for (const std::string frames : {"Exception raised from", "frame #"}) {
    REQUIRE(told.outcome.output.find(frames) == std::string::npos);
  }
}

TEST_CASE("of a hang it is told where each rank is") {
  const auto told = told_of("hang", {"--hang-timeout", "3"});
  REQUIRE(told.outcome.exit_code == 124);
  REQUIRE(told.report["outcome"] == "timeout");
  const auto& ranks = told.report["ranks"];
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(rank, ranks[rank].dump(2));
    const std::string stack = ranks[rank]["stack"];
    const bool hangs = rank == 1;
    const std::string activity = ranks[rank]["activity"];
    REQUIRE(
        activity == (hangs ? "after all_reduce" : "all_reduce of 1000 Float"));
    REQUIRE(
        (stack.find("misbehaving::wait_for_nobody()") != std::string::npos) ==
        hangs);
    REQUIRE_THAT(stack, Has("main"));
  }
  REQUIRE_THAT(
      told.outcome.output,
      Has("ddprun: no progress for 3.0 s (--hang-timeout)",
          ": in all_reduce of 1000 Float\n",
          ": after all_reduce\n"));
}

} // namespace ddp::test::launched_failures_test
