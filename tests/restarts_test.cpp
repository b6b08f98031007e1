// Programs that meet over gloo, restarted by ddprun again and again.
#include <tests/support/catch.h>
#include <tests/support/process.h>
#include <tests/support/skip.h>

#include <cstdlib>
#include <iostream>

namespace ddp::test::restarts_test {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// How many restarts; DDP_TEST_RESTARTS says another number for a longer run.
int restarts() {
  const auto text = variable("DDP_TEST_RESTARTS");
  return text.empty() ? 3 : std::stoi(text);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// Each attempt but the last fails, and every one has to get as far as a sum.
void check_restarts(int ranks, const std::vector<std::string>& program) {
  const auto number = std::to_string(restarts());
  Command command;
  command.arguments = {
      variable("DDPRUN"),
      "--nproc-per-node",
      std::to_string(ranks),
      "--max-restarts",
      number};
  for (const auto& each : program) {
    command.arguments.push_back(each);
  }
  command.arguments.push_back(number);
  command.environment = {{"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}};
  const auto outcome = run(command, std::chrono::seconds(60 + 20 * restarts()));
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);
  const auto sum = ": sum " + std::to_string(ranks);
  REQUIRE(count_of(outcome.output, sum) == restarts() + 1);
  REQUIRE(
      count_of(outcome.output, "exited with code 3") ==
      restarts()); // each time
  REQUIRE(count_of(outcome.output, "attempt " + number + sum) == 1);
  std::cout << ranks << " ranks of " << program.back() << ": " << number
            << " of " << number << " restarts work\n";
}

} // namespace

TEST_CASE("C++ ranks meet again after each restart") {
  const int ranks = GENERATE(2, 4);
  check_restarts(ranks, {variable("DDP_PROGRAMS") + "/failing_attempts"});
}

TEST_CASE("Python ranks meet again after each restart") {
  const auto python = python_with_torch();
  const int ranks = GENERATE(2, 4);
  check_restarts(
      ranks,
      {python, variable("DDP_SOURCE") + "/tests/parity/failing_attempts.py"});
}

} // namespace ddp::test::restarts_test
