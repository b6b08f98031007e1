// examples/inference.cpp with several numbers of processes.
#include <tests/support/examples.h>

namespace ddp::test::inference_test {

Command infer(int ranks, const Words& arguments = {}) {
  Words all{"--batch-size", "7", "--width", "16", "--repeats", "2"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return example(ranks, "inference", all);
}

std::string error_of(const Command& command) {
  const auto outcome = run(command, kLong);
  INFO(outcome.output);
  CHECK(outcome.exit_code == 1);
  return outcome.output;
}

TEST_CASE("a batch of 3 is split over processes and its result joined") {
  const auto alone = output_of(infer(1));
  CHECK_THAT(
      alone,
      Has("rank 0 of 1: input size [3, 32], output size [3, 64] on cpu"));
  const auto two = output_of(infer(2));
  CHECK_THAT(
      two,
      Has("rank 0 of 2: input size [2, 32], output size [2, 64] on cpu",
          "rank 1 of 2: input size [1, 32], output size [1, 64] on cpu",
          "rank 0 has the result, size [3, 64] on cpu") &&
          !Has("rank 1 has the result"));
  const std::regex speed(
      "7 samples of 16 numbers, 1 threads per process: [1-9]\\d* samples/s by "
      "one process, [1-9]\\d* by 2: \\d+\\.\\d\\d times as many");
  CHECK(std::regex_search(two, speed));
}

TEST_CASE("every process may get the result, and some no sample") {
  const auto output = output_of(infer(4, {"--all"}));
  CHECK_THAT(
      output,
      Has("rank 2 of 4: input size [1, 32]") &&
          !Has(
              "rank 3 of 4: input size",
              "rank 3 has the result, size [3, 64] on cpu"));
}

TEST_CASE("an input on another device than the net is explained") {
  CHECK_THAT(
      error_of(infer(3, {"--no-move", "--input-device", "meta"})),
      Has("error: parallel_forward from rank 0 to rank 0 failed: rank 0: the "
          "input is on meta, but the module and the group are on cpu: pass "
          "input.to(group.device()), or leave move_input on"));
  CHECK_THAT(
      error_of(infer(3, {"--input-device", "meta"})),
      Has("cannot be sent from meta by way of cpu"));
  output_of(infer(2, {"--no-move"}));
}

TEST_CASE("what the inference program cannot do it says in one line") {
  CHECK_THAT(
      error_of(infer(1, {"--input-device", "gpu"})), Has("error: ", "gpu"));
}

} // namespace ddp::test::inference_test
