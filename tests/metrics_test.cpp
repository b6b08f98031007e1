// Values over all ranks, which programs print during a training.
#include <tests/support/failures.h>

#include <ddp/metrics.h>

namespace ddp::test::metrics_test {

TEST_CASE("sum and mean of a number are the same on all ranks") {
  ranks(3, [](ProcessGroup group) {
    // Only a sum in the order of the ranks is 1.
    const double values[] = {1e300, -1e300, 1.0};
    REQUIRE(sum(values[group.rank()], group) == 1.0);
    REQUIRE(mean(static_cast<double>(group.rank()), group) == 1.0);
  });
  REQUIRE(sum(2.5, ProcessGroup()) == 2.5);
  REQUIRE(mean(2.5, ProcessGroup()) == 2.5);
}

RANKS_TEST("a mean is not taken for a sum", 3) {
  // As if rank 0 had one batch more than the others.
  const auto error = error_of<c10::ValueError>(
      [&] { group.rank() == 0 ? mean(2.5, group) : sum(2.5, group); });
  REQUIRE_THAT(
      error,
      Has("the ranks made different calls: rank 0: mean; ranks 1 and 2: sum"));
}

RANKS_TEST("only rank 0 prints") {
  std::ostringstream text;
  auto* const old = std::cout.rdbuf(text.rdbuf());
  print(group, "epoch ", 3, ": ", 0.5);
  std::cout.rdbuf(old);
  REQUIRE(text.str() == (group.rank() == 0 ? "epoch 3: 0.5\n" : ""));
}

} // namespace ddp::test::metrics_test
