// Programs that communicate over gloo, restarted by ddprun many times.
#include <tests/support/launched.h>

namespace ddp::test::restarts_test {

/// The number of restarts; set DDP_TEST_RESTARTS for a longer run.
int restarts() {
  return variable("DDP_TEST_RESTARTS", 3);
}

/// Each attempt but the last fails; every attempt must complete an all-reduce.
void check_restarts(int ranks, const Words& program) {
  const auto number = std::to_string(restarts());
  auto command = with_ddprun(ranks, program, {"--max-restarts", number});
  command.arguments.push_back(number);
  const auto output =
      output_of(command, std::chrono::seconds(60 + 20 * restarts()));
  INFO(output);
  const auto sum = ": sum " + std::to_string(ranks);
  REQUIRE(count_of(output, sum) == restarts() + 1);
  REQUIRE(
      count_of(output, "exited with code 3 after") == restarts()); // each time
  REQUIRE(count_of(output, "attempt " + number + sum) == 1);
  std::cout << ranks << " ranks of " << program.back() << ": " << number
            << " of " << number << " restarts work\n";
}

TEST_CASE("C++ ranks meet again after each restart") {
  const int ranks = GENERATE(2, 4);
  check_restarts(ranks, {program("failing_attempts")});
}

TEST_CASE("Python ranks meet again after each restart") {
  const auto python = python_with_torch();
  const int ranks = GENERATE(2, 4);
  check_restarts(ranks, {python, parity_program("failing_attempts.py")});
}

} // namespace ddp::test::restarts_test
