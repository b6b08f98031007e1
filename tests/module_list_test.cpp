// examples/module_list.cpp: cells that are kept rightly, and wrongly.
#include <tests/support/catch.h>
#include <tests/support/examples.h>

#include <algorithm>
#include <string>
#include <vector>

namespace module_list_test {

namespace {

using ddp::test::matches;

struct Result {
  double loss = 0;
  /// How many different states the ranks' cells are in.
  size_t states = 0;
  bool reported = false;
  std::string output;
};

Result train(
    int ranks,
    const std::string& cells,
    bool wrap = false,
    int steps = 20) {
  std::vector<std::string> arguments{
      "--cells", cells, "--steps", std::to_string(steps)};
  if (wrap) {
    arguments.emplace_back("--wrap");
  }
  Result result;
  result.output = ddp::test::output_of_example(ranks, "module_list", arguments);
  const auto losses = matches(result.output, "step \\d+: loss (\\S+)");
  REQUIRE(losses.size() == 1);
  result.loss = std::stod(losses[0][0]);
  auto hashes = matches(result.output, "cells ([0-9a-f]{16})");
  REQUIRE(hashes.size() == static_cast<size_t>(ranks));
  std::sort(hashes.begin(), hashes.end());
  result.states = std::unique(hashes.begin(), hashes.end()) - hashes.begin();
  result.reported =
      result.output.find("belong to no Reducer") != std::string::npos;
  const bool equal = result.output.find("cells are equal") != std::string::npos;
  CHECK(equal == (result.states == 1));
  return result;
}

} // namespace

TEST_CASE("cells that are registered train as in one process") {
  const auto check = [](const Result& together, const Result& alone) {
    CAPTURE(alone.output, together.output);
    CHECK(together.states == 1);
    CHECK(!together.reported);
    CHECK(ddp::test::is_near(together.loss, alone.loss));
  };
  const auto modules = train(1, "list");
  check(train(2, "list"), modules);
  check(train(3, "list", /*wrap=*/true), modules);
  check(train(3, "dict"), modules); // the same modules under other names
  const auto tensors = train(1, "registered-tensors");
  check(train(2, "registered-tensors", /*wrap=*/true), tensors);
}

TEST_CASE("cells in a plain vector drift apart and are told of at once") {
  const auto check = [](const Result& result, size_t ranks) {
    INFO(result.output);
    CHECK(result.states == ranks);
    CHECK(result.reported);
    // All three cells, weight and bias.
    const auto lines = matches(
        result.output, "\\[0\\]   Float (\\[16, 16\\]|\\[16\\]) on cpu");
    CHECK(lines.size() == 6);
  };
  check(train(2, "vector", /*wrap=*/false, /*steps=*/1), 2);
  check(train(3, "vector", /*wrap=*/true, /*steps=*/1), 3);
  check(train(2, "tensors", /*wrap=*/true, /*steps=*/1), 2);
  check(train(3, "tensors", /*wrap=*/false, /*steps=*/1), 3);
}

} // namespace module_list_test
