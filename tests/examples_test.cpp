// examples/inference.cpp with several numbers of processes.
#include <tests/support/examples.h>

namespace ddp::test::examples_test {

Command infer(int ranks, const Words& arguments = {}) {
  Words all{"--batch-size", "7", "--width", "16", "--repeats", "2"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return example(ranks, "inference", all);
}

std::string error_of(const Command& command) {
  return output_of(run(command, kLong), 1);
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
          "input.to(group.device()), or keep move_input enabled"));
  CHECK_THAT(
      error_of(infer(3, {"--input-device", "meta"})),
      Has("cannot be sent from meta through cpu"));
  output_of(infer(2, {"--no-move"}));
}

TEST_CASE("what the inference program cannot do it says in one line") {
  CHECK_THAT(
      error_of(infer(1, {"--input-device", "gpu"})), Has("error: ", "gpu"));
}

// examples/gan.cpp with several numbers of processes, and resumed.

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
          "(\\d+)");
  return {std::stod(found[0]), std::stod(found[1]), found[2], output};
}

FOLDER_TEST("two nets are trained by several processes as by one") {
  const auto alone = train(1, folder / "1", 40);
  CHECK(alone.discriminator_loss > 0.1); // neither net has won
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
  CHECK_THAT(second.output, Has("resumes from step 40"));
  CHECK(second.parameters == whole.parameters);
}

FOLDER_TEST("a run that is over says so, and a batch has to be divided") {
  train(2, folder / "run", 20);
  CHECK_THAT(output_of(gan(2, folder / "run", 20)), Has("nothing left to do"));
  CHECK_THAT(
      error_of(gan(3, folder / "other", 20, "2")),
      Has("a batch of 2 points cannot be divided evenly by 3 ranks"));
}

// examples/model_parallel.cpp with several numbers of processes.

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
  return std::stod(match(output, "cpu and cpu on rank 0, loss (\\S+)\n")[0]);
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
      error_of(train(3, "none", {"--batch-size=8"})),
      Has("error: a batch of 8 cannot be divided evenly among 3 processes"));
}

// examples/resumable.cpp, stopped by a signal.

Command resumable(const std::string& folder) {
  return example(3, "resumable", {folder, "--epochs=4"});
}

/// The text after `start` in the output, up to the line's end.
std::string after(const std::string& output, const std::string& start) {
  const auto at = output.find(start);
  if (at == std::string::npos) {
    return "";
  }
  std::istringstream rest(output.substr(at + start.size()));
  std::string line;
  std::getline(rest, line);
  return line;
}

/// Runs from the beginning, or from where it was stopped, to the end.
std::string parameters_of(const std::string& folder, const std::string& from) {
  const auto output = output_of(resumable(folder));
  REQUIRE(after(output, "resumes from step ") == from);
  return after(output, "parameters ");
}

/// Signals a run in its second epoch and returns the step at which it stopped.
std::string stop(const Command& command, int signal, int exit_code) {
  Process process(command);
  REQUIRE(process.wait_for("epoch 2", kLong));
  process.signal(signal);
  const auto output = output_of(process.finish(kLong), exit_code);
  const auto step = after(output, "stopped at step ");
  REQUIRE(step != "");
  return step;
}

FOLDER_TEST("a run that a signal stops goes on with the same bits") {
  const auto expected = parameters_of(folder / "whole", "");
  REQUIRE(!expected.empty());

  const auto stopped = folder / "ddprun";
  const auto step = stop(resumable(stopped), SIGTERM, 128 + SIGTERM);
  CHECK(parameters_of(stopped, step) == expected);
}

// examples/sharded_files.cpp on three processes.

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
  // The files exist for the next run.
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
  REQUIRE_THAT(
      refusal_of(run(example(3, "sharded_files", {"--data", data}), kLong)),
      Has("000001.shard' is corrupt or incomplete"));
}

// examples/minimal: the small difference, and the equal training.

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

/// The losses of all ranks: an epoch's lines one after the other.
std::vector<double> train_after(
    int ranks,
    int batch_size,
    const std::string& file) {
  return losses(output_of(
      example(ranks, "minimal", {"3", std::to_string(batch_size), file})));
}

TEST_CASE("a trainer becomes one of several by ten lines") {
  const auto folder = variable("DDP_SOURCE") + "/examples/minimal";
  const Command diff{
      {"diff", folder + "/minimal_before.cpp", folder + "/minimal.cpp"}, {}};
  const auto output = output_of(run(diff, kLong), 1); // they differ
  const auto added = matches(output, "(^|\n)> ").size();
  const auto removed = matches(output, "(^|\n)< ").size();
  CHECK(added > 0);
  CHECK(added + removed <= 10);
}

FOLDER_TEST("one process trains after the change as before it") {
  // One batch of all samples, since the samplers draw different orders.
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

} // namespace ddp::test::examples_test
