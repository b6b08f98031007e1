// ddprun's reports about ranks that use ddp and fail.
#include <tests/support/failures.h>
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

using std::chrono::seconds;

TEST_CASE("an exception that a rank does not catch reaches its peers") {
  for (const int failing : {2, 0}) { // with rank 0, the store ends
    ranks(4, RankOptions(kPrompt).exit_codes({{failing, 134}}), [failing] {
      const auto group = init_process_group(kTimeout);
      if (group.rank() == failing) {
        throw_uncaught();
      }
      const auto error = all_reduce_error(group);
      const auto rank = std::to_string(failing);
      REQUIRE_THAT(
          error,
          Has("rank " + std::to_string(group.rank()),
              "all_reduce over gloo failed",
              "because rank " + rank + " of 4 on host",
              "boom in forward"));
    });
  }
}

RANKS_TEST(
    "an uncaught exception reaches ranks that wait for a duplicate",
    3,
    kTimeout,
    RankOptions(kPrompt).exit_codes({{1, 134}})) {
  if (group.rank() == 1) {
    throw_uncaught();
  }
  REQUIRE_THAT(error_of([&] { group.duplicate(); }), Has("boom in forward"));
}

TEST_CASE("an uncaught exception reaches a part whose whole group is gone") {
  for (const int failing : {2, 0}) { // with rank 0, the store ends
    ranks(3, RankOptions(kPrompt).exit_codes({{failing, 134}}), [failing] {
      const auto part = init_process_group(kTimeout).split(0);
      if (part.rank() == failing) {
        throw_uncaught();
      }
      REQUIRE_THAT(all_reduce_error(part), Has("boom in forward"));
    });
  }
}

TEST_CASE("an uncaught error is printed with frames only where asked for") {
  for (const std::string asked : {"0", "1"}) {
    const auto outcomes = ranks(
        2,
        RankOptions()
            .environment({{"TORCH_SHOW_CPP_STACKTRACES", asked}})
            .exit_codes({{1, 134}}),
        [] {
          const auto group = init_process_group(kTimeout);
          if (group.rank() == 1) {
            std::thread([] { TORCH_CHECK_VALUE(false, "boom"); }).join();
          }
          all_reduce_error(group);
        });
    if (!outcomes.empty()) { // else: a rank's process
      const auto& output = outcomes[1].output;
      const bool brief = asked == "0";
      CAPTURE(output);
      REQUIRE(
          (output.find("error: c10::ValueError: boom\n") !=
           std::string::npos) == brief);
      REQUIRE((output.find("frame #") == std::string::npos) == brief);
    }
  }
}

TEST_CASE("an error in what decides about errors is printed as any") {
  const auto outcomes = ranks(
      1,
      RankOptions().environment({{"DDP_DEBUG", "yes"}}).exit_codes({{0, 134}}),
      [] { std::thread([] { (void)init_process_group(); }).join(); });
  if (!outcomes.empty()) { // else: the rank's process
    REQUIRE_THAT(
        outcomes[0].output,
        Has("error: c10::ValueError: DDP_DEBUG='yes' in the environment"));
  }
}

RANKS_TEST(
    "a later group leaves an earlier one's reports on",
    3,
    kTimeout,
    RankOptions(kPrompt).exit_codes({{1, 134}})) {
  const auto alone =
      init_process_group(ProcessGroupOptions(kTimeout).rank(0).world_size(1));
  if (group.rank() == 1) {
    throw_uncaught();
  }
  REQUIRE_THAT(all_reduce_error(group), Has("boom in forward"));
}

RANKS_TEST(
    "uncaught exceptions are not reported where that is off",
    3,
    ProcessGroupOptions(kTimeout).report_uncaught(false),
    RankOptions(kPrompt).exit_codes({{1, 134}})) {
  if (group.rank() == 1) {
    throw_uncaught();
  }
  REQUIRE_THAT(all_reduce_error(group), !Has("boom in forward"));
}

} // namespace ddp::test::launched_failures_test
