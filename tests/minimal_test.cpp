// examples/minimal: how little changes, and that it trains alike.
#include <tests/support/examples.h>

namespace ddp::test::minimal_test {

std::vector<double> losses(const std::string& output) {
  std::vector<double> all;
  for (const auto& line : matches(output, "epoch \\d+: mean loss (\\S+)")) {
    all.push_back(std::stod(line[0]));
  }
  return all;
}

std::vector<double> train_before(int batch_size, const std::string& file) {
  return losses(output_of(Command{
      {variable("DDP_EXAMPLES") + "/minimal_before",
       "3",
       std::to_string(batch_size),
       file},
      {{"CUDA_VISIBLE_DEVICES", ""}, {"OMP_NUM_THREADS", "1"}}}));
}

/// Of all ranks: an epoch's lines one after the other.
std::vector<double> train_after(
    int ranks,
    int batch_size,
    const std::string& file) {
  return losses(output_of(
      example(ranks, "minimal", {"3", std::to_string(batch_size), file})));
}

TEST_CASE("a trainer becomes one of several by less than ten lines") {
  const auto folder = variable("DDP_SOURCE") + "/examples/minimal";
  const auto outcome = run(
      Command{
          {"diff", folder + "/minimal_before.cpp", folder + "/minimal.cpp"},
          {}},
      kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 1); // they differ
  const auto added = matches(outcome.output, "(^|\n)> ").size();
  const auto removed = matches(outcome.output, "(^|\n)< ").size();
  CHECK(added > 0);
  CHECK(added + removed < 10);
}

FOLDER_TEST("one process trains after the change as before it") {
  // One batch of all: the samplers draw different orders.
  const auto before = train_before(1200, folder / "before.pt");
  const auto after = train_after(1, 1200, folder / "after.pt");
  REQUIRE(before.size() == 3);
  REQUIRE(after.size() == 3);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    CAPTURE(epoch);
    CHECK(is_near(after[epoch], before[epoch]));
  }
  CHECK(before[2] < before[0]);
  // In small batches, as a user would.
  const auto small_before = train_before(40, folder / "before.pt");
  const auto small_after = train_after(1, 40, folder / "after.pt");
  CHECK(is_near(small_after[2], small_before[2], 0.1));
}

FOLDER_TEST("several processes train as one on their batches together") {
  const auto alone = train_after(1, 1200, folder / "1.pt");
  for (const int ranks : {2, 3}) {
    const auto file = folder / (std::to_string(ranks) + ".pt");
    auto together = train_after(ranks, 1200 / ranks, file);
    REQUIRE(together.size() == 3 * static_cast<size_t>(ranks));
    // Each rank prints its own loss: their mean is that of the whole batch.
    double sum = 0;
    double sum_alone = 0;
    for (const double loss : together) {
      sum += loss / ranks;
    }
    for (const double loss : alone) {
      sum_alone += loss;
    }
    CAPTURE(ranks);
    CHECK(is_near(sum, sum_alone));
    output_of(Command{// the same weights
                      {variable("DDP_CHECKPOINT"),
                       "diff",
                       "--rtol=1e-3",
                       "--atol=1e-5",
                       folder / "1.pt",
                       file},
                      {}});
  }
}

} // namespace ddp::test::minimal_test
