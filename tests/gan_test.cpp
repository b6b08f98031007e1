// examples/gan.cpp with several numbers of processes, and gone on with.
#include <tests/support/examples.h>

namespace ddp::test::gan_test {

struct Result {
  double discriminator_loss = 0;
  double generator_loss = 0;
  std::string parameters;
  std::string output;
};

Command gan(
    int ranks,
    const std::string& folder,
    int steps,
    const std::string& batch_size = "48") {
  return example(
      ranks,
      "gan",
      {folder,
       "--steps=" + std::to_string(steps),
       "--save-every=20",
       "--batch-size=" + batch_size});
}

Result train(int ranks, const std::string& folder, int steps) {
  const auto output = output_of(gan(ranks, folder, steps));
  const auto found = match(
      output,
      "step " + std::to_string(steps) +
          ": loss of discriminator (\\S+), of generator (\\S+), parameters "
          "([0-9a-f]{16})");
  return {std::stod(found[0]), std::stod(found[1]), found[2], output};
}

FOLDER_TEST("two nets are trained by several processes as by one") {
  const auto alone = train(1, folder / "1", 40);
  CHECK(alone.discriminator_loss > 0.1); // neither has won
  CHECK(alone.generator_loss > 0.1);
  for (int ranks : {2, 3}) {
    const auto together = train(ranks, folder / std::to_string(ranks), 40);
    CAPTURE(ranks, together.output, alone.output);
    CHECK(is_near(together.discriminator_loss, alone.discriminator_loss));
    CHECK(is_near(together.generator_loss, alone.generator_loss));
  }
}

FOLDER_TEST("one checkpoint has both nets and both optimizers") {
  const auto whole = train(3, folder / "whole", 60);
  train(3, folder / "parts", 40);
  const auto second = train(3, folder / "parts", 60);
  CHECK_THAT(second.output, Has("goes on from step 40"));
  CHECK(second.parameters == whole.parameters);
}

FOLDER_TEST("a run that is over says so, and a batch has to be divided") {
  train(2, folder / "run", 20);
  CHECK_THAT(output_of(gan(2, folder / "run", 20)), Has("nothing left to do"));
  const auto small = run(gan(3, folder / "other", 20, "2"), kLong);
  CHECK(small.exit_code == 1);
  CHECK_THAT(
      small.output, Has("a batch of 2 points cannot be divided by 3 ranks"));
}

} // namespace ddp::test::gan_test
