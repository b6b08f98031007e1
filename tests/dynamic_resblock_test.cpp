// examples/dynamic_resblock.cpp: branches that differ over ranks, and functions
// that captured `this`.
#include <tests/support/catch.h>
#include <tests/support/examples.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dynamic_resblock_test {

namespace {

using ddp::test::matches;

std::string train(int ranks, const std::string& branch, int steps) {
  return ddp::test::output_of_example(
      ranks,
      "dynamic_resblock",
      {"--steps", std::to_string(steps), "--branch", branch});
}

double loss_of(const std::string& output) {
  const auto found = matches(output, "step \\d+: loss (\\S+),");
  REQUIRE(found.size() == 1);
  return std::stod(found[0][0]);
}

/// Whether in the last step some rank had hard images and some had none.
bool took_different_branches(const std::string& output, size_t ranks) {
  const auto counts = matches(output, "rank \\d: (\\d+) of \\d+ images");
  CHECK(counts.size() == ranks);
  const auto none =
      std::count(counts.begin(), counts.end(), std::vector<std::string>{"0"});
  return none > 0 && static_cast<size_t>(none) < ranks;
}

} // namespace

TEST_CASE("ranks that take different branches train as one process does") {
  CHECK(loss_of(train(1, "flag", 301)) < 0.2); // it learns; at first 2.8
  const auto alone = train(1, "flag", 21);
  for (const int ranks : {2, 3}) {
    const auto together = train(ranks, "flag", 21);
    CAPTURE(ranks, together, alone);
    CHECK(took_different_branches(together, ranks));
    CHECK(ddp::test::is_near(loss_of(together), loss_of(alone)));
  }
}

TEST_CASE("a branch bound to `this` trains as one chosen in forward") {
  const auto flag = train(3, "flag", 21);
  const auto bound = train(3, "bound", 21);
  const auto hash = matches(flag, "parameters ([0-9a-f]{16})");
  REQUIRE(hash.size() == 1);
  CHECK(matches(bound, "parameters ([0-9a-f]{16})") == hash);
  CHECK_THAT(bound, !ContainsSubstring("belong to no Reducer"));
}

TEST_CASE("a clone that calls its original is told of in the first step") {
  const auto output = train(3, "stale-clone", 1);
  CHECK_THAT(
      output,
      ContainsSubstring("belong to no Reducer") &&
          ContainsSubstring("They look like the originals of "
                            "'early.0.layers.0.weight'") &&
          ContainsSubstring("does a cloned module still call a function that "
                            "captured the original's `this`?"));
}

} // namespace dynamic_resblock_test
