#include <tests/support/failures.h>

#include <nlohmann/json.hpp>

namespace ddp::test::uncaught_test {

using std::chrono::seconds;

TEST_CASE("an exception that a rank does not catch reaches its peers") {
  for (const int failing : {2, 0}) { // 0 takes the store with it
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

TEST_CASE("an uncaught exception is written to the launcher's error file") {
  std::unique_ptr<TemporaryFolder> folder;
  std::string path;
  if (!std::getenv("TORCHELASTIC_ERROR_FILE")) { // else: a rank's process
    folder = std::make_unique<TemporaryFolder>();
    path = *folder / "error.json";
  }
  const auto options = RankOptions(kPrompt)
                           .environment({{"TORCHELASTIC_ERROR_FILE", path}})
                           .exit_codes({{1, 134}});
  ranks(3, options, [] {
    const auto group = init_process_group(kTimeout);
    if (group.rank() == 1) {
      throw_uncaught();
    }
    all_reduce_error(group);
  });
  const auto content = nlohmann::json::parse(std::ifstream(path));
  const auto& message = content.at("message");
  REQUIRE(message.at("message") == "std::runtime_error: boom in forward");
  REQUIRE(
      std::stoll(message.at("extraInfo").at("timestamp").get<std::string>()) >
      1600000000);
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

} // namespace ddp::test::uncaught_test
