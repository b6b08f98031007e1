// examples/sharded_files.cpp on three processes.
#include <tests/support/examples.h>

namespace ddp::test::sharded_files_test {

double loss_of(const std::string& output, const std::string& epoch) {
  return std::stod(match(output, epoch + ": loss (\\S+)")[0]);
}

FOLDER_TEST("the example of sharded files trains on three ranks") {
  const auto data = folder / "shards";
  const auto output = output_of(example(
      3,
      "sharded_files",
      {"--data", data, "--make", "9", "--records", "1000"}));
  REQUIRE(loss_of(output, "epoch 3") < 0.9 * loss_of(output, "epoch 1"));
  REQUIRE_THAT(output, Has("3300 of 9900 records"));
  REQUIRE_THAT(output, Has("equal on all ranks"));
  // The files are there for the next run.
  output_of(example(3, "sharded_files", {"--data", data, "--epochs", "1"}));
}

FOLDER_TEST("the example of sharded files names a file that is damaged") {
  const auto data = folder / "shards";
  output_of(example(
      1,
      "sharded_files",
      {"--data", data, "--make", "2", "--records", "8", "--epochs", "1"}));
  const auto path = data + "/000001.shard";
  const auto text = read_text(path);
  write_text(path, text.substr(0, text.size() - 1));
  const auto outcome =
      run(example(3, "sharded_files", {"--data", data}), kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE_THAT(outcome.output, Has("000001.shard' is damaged or incomplete"));
}

} // namespace ddp::test::sharded_files_test
