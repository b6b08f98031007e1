// examples/model_parallel.cpp with several numbers of processes.
#include <tests/support/examples.h>

namespace ddp::test::model_parallel_test {

Command train(int ranks, const std::string& file, const Words& options) {
  Words arguments{file, "--device=cpu"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return example(ranks, "model_parallel", arguments);
}

double loss_of(int ranks) {
  const TemporaryFolder folder;
  const auto output = output_of(train(
      ranks,
      folder / "net.safetensors",
      {"--width=48", "--layers=2", "--batch-size=12", "--steps=30"}));
  return std::stod(
      match(output, "cpu and cpu on rank 0, loss (\\S+), parameters")[0]);
}

TEST_CASE("a net in two parts is trained by several processes as by one") {
  const auto alone = loss_of(1);
  CHECK(alone < 0.43); // it has learnt something
  for (const int ranks : {2, 3}) {
    const auto together = loss_of(ranks);
    CAPTURE(ranks, alone, together);
    CHECK(is_near(together, alone));
  }
}

TEST_CASE("an option that does not fit is said") {
  CHECK_THAT(
      run(train(3, "none", {"--batch-size=8"}), kLong).output,
      Has("error: a batch of 8 cannot be shared by 3 processes evenly"));
}

} // namespace ddp::test::model_parallel_test
