#include <tests/parity/configurations.h>
#include <tests/support/launched.h>

namespace ddp::test::parity_test {

constexpr auto npos = std::string::npos;
constexpr auto kLong = std::chrono::seconds(180);

/// Trains in C++, then in Python, which compares.
Outcome compare(
    int size,
    const std::string& configuration,
    const std::string& fault = "") {
  const TemporaryFolder folder;
  output_of(
      with_ddprun(
          size,
          {program("parity_trainer"), folder.path(), configuration, fault}),
      kLong);
  return run(
      Command{
          {variable("DDP_PYTHON"),
           parity_program("ddp_parity.py"),
           folder.path(),
           std::to_string(size),
           configuration},
          {{"OMP_NUM_THREADS", "1"}}},
      kLong);
}

void check_equal(int size) {
  python_with_torch();
  const auto outcome = compare(size, "all");
  const std::string equal =
      ": 0 differences over " + std::to_string(size) + " ranks\n";
  for (const auto& configuration : parity::configurations()) {
    INFO(configuration.name);
    const auto line = "\n" + configuration.name + equal;
    const bool no_difference = outcome.output.find(line) != npos;
    CHECK(no_difference);
  }
  output_of(outcome);
}

void check_noticed(
    const std::string& configuration,
    const std::string& fault,
    const std::string& first_difference) {
  python_with_torch();
  const auto outcome = compare(3, configuration, fault);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE_THAT(outcome.output, Has(first_difference));
}

// Two ranks would prove nothing: every order of addition gives the same bits,
// and so do multiplication and division.
TEST_CASE("three ranks equal Python's DistributedDataParallel bit for bit") {
  check_equal(3);
}

TEST_CASE("four ranks equal Python's DistributedDataParallel bit for bit") {
  check_equal(4);
}

TEST_CASE("without the all-reduce the comparison with Python fails") {
  check_noticed("defaults", "no-reduce", "defaults, rank 0, step0: grad.");
}

TEST_CASE("multiplication instead of division is seen in the comparison") {
  // In the first step gradients are new, and both sides multiply.
  check_noticed("views_zeroed", "multiply", "\nviews_zeroed, rank 0, step1: ");
}

} // namespace ddp::test::parity_test
