#include <tests/support/catch.h>
#include <tests/support/process.h>

#include <cstdlib>
#include <iostream>

using ddp::test::Command;
using ddp::test::Outcome;
using ddp::test::TemporaryFolder;

namespace {

constexpr auto kLong = std::chrono::seconds(180);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Whether there is a Python with torch to compare with; says so if not.
bool have_python() {
  if (variable("DDP_PYTHON").empty()) {
    std::cout << "[skipped] DDP_PYTHON names no Python that has torch\n";
    return false;
  }
  return true;
}

Outcome compare(int size, const std::vector<std::string>& trainer_options) {
  const TemporaryFolder folder;
  Command trainer{
      {variable("DDPRUN"),
       "--nproc-per-node",
       std::to_string(size),
       variable("DDP_PROGRAMS") + "/parity_trainer",
       folder / ""},
      {{"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}}};
  for (const auto& option : trainer_options) {
    trainer.arguments.push_back(option);
  }
  const auto trained = run(trainer, kLong);
  INFO(trained.output);
  REQUIRE(trained.exit_code == 0);
  return run(
      Command{
          {variable("DDP_PYTHON"),
           variable("DDP_SOURCE") + "/tests/parity/ddp_parity.py",
           folder / "",
           std::to_string(size)},
          {{"OMP_NUM_THREADS", "1"}}},
      kLong);
}

} // namespace

TEST_CASE("training equals Python's DistributedDataParallel bit for bit") {
  for (const int size :
       have_python() ? std::vector{3, 4} : std::vector<int>{}) {
    const auto outcome = compare(size, {});
    INFO(outcome.output);
    REQUIRE(!outcome.hung);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE_THAT(
        outcome.output,
        ContainsSubstring(
            "0 differences over " + std::to_string(size) + " ranks"));
  }
}

TEST_CASE("without the all-reduce the comparison with Python fails") {
  if (have_python()) {
    const auto outcome = compare(3, {"--no-reduce"});
    INFO(outcome.output);
    REQUIRE(outcome.exit_code == 1);
    REQUIRE_THAT(outcome.output, ContainsSubstring("step 0: grad."));
  }
}
