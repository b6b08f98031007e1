// examples/cifar10_resnet: its counts, resumed runs, errors, and the tutorial's
// command line.
#include <tests/support/examples.h>

namespace ddp::test::cifar10_resnet_test {

constexpr int kCifarRecord = 1 + 3 * 32 * 32;

/// The bytes of `records` records of CIFAR-10's binary format: labels 0, 1, ...
/// in turn, each with a different brightness, and noise.
std::string cifar_records(int records, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (int i = 0; i < records; ++i) {
    const int label = i % 10;
    bytes += static_cast<char>(label);
    for (int pixel = 1; pixel < kCifarRecord; ++pixel) {
      bytes += static_cast<char>(20 * label + random() % 60);
    }
  }
  return bytes;
}

/// Writes the six files of CIFAR-10 into `folder`/cifar-10-batches-bin, with
/// these numbers of records in each of the five training files and in the test
/// file.
void write_cifar(const std::string& folder, int train, int test) {
  const auto inner = std::filesystem::path(folder) / "cifar-10-batches-bin";
  std::filesystem::create_directories(inner);
  for (unsigned i = 1; i <= 5; ++i) {
    write_text(
        inner / ("data_batch_" + std::to_string(i) + ".bin"),
        cifar_records(train, i));
  }
  write_text(inner / "test_batch.bin", cifar_records(test, 6));
}

/// Runs a shell's line in `folder`; programs need no paths.
Command line(const TemporaryFolder& folder, const std::string& text) {
  const auto launcher = std::filesystem::path(variable("DDPRUN")).parent_path();
  const auto path = launcher.string() + ":" + variable("DDP_EXAMPLES") + ":" +
      variable("PATH");
  return {
      {"sh", "-c", "cd '" + folder.path() + "' && exec " + text},
      {{"PATH", path}, {"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}}};
}

/// `options` of ResNet-18.
Command train(
    const TemporaryFolder& folder,
    int ranks,
    const std::string& options) {
  return line(
      folder,
      "ddprun --grace 240 --nproc-per-node " + std::to_string(ranks) +
          " cifar10_resnet --depth=18 --workers=1 " + options);
}

/// The text in the first group of `form`.
std::string find(const std::string& text, const std::string& form) {
  return match(text, form)[0];
}

/// The bytes of the event files in `folder`.
std::string events_of(const std::string& folder) {
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += read_text(entry.path());
  }
  return bytes;
}

/// Stops the command soon; returns its output.
std::string stop(const Command& command) {
  Process process(command);
  REQUIRE(process.wait_for("batches of training", kLong));
  process.signal(SIGTERM);
  const auto output = output_of(process.finish(kLong), 128 + SIGTERM);
  find(output, "stopped at step (\\d+); run again");
  return output;
}

FOLDER_TEST("each image is counted once, by however many ranks") {
  write_cifar(folder / "data", 4, 13); // 20 to train with
  for (const int ranks : {1, 2, 3}) {
    const auto output = output_of(train(
        folder,
        ranks,
        "--n_epochs=1 --batch_size=4 --folder=" + std::to_string(ranks)));
    CAPTURE(ranks, output);
    // Training samples are padded to equal shares.
    const auto trained = ranks == 3 ? "21" : "20";
    CHECK(find(output, "train loss .* of (\\d+) images right; ") == trained);
    CHECK(find(output, "test loss .* of (\\d+) images right\n") == "13");
    CHECK_THAT(output, Has("parameters: hash "));
    const auto events = events_of(folder / std::to_string(ranks) + "/events");
    for (const std::string tag :
         {"train/loss",
          "train/accuracy",
          "train/learning_rate",
          "test/loss",
          "test/accuracy"}) {
      CHECK_THAT(events, Has(tag));
    }
  }
}

FOLDER_TEST("a run that was stopped goes on with the same bits") {
  write_cifar(folder / "data", 6, 5);
  const std::string options = "--batch_size=2 --n_epochs=2 --folder=";
  const auto whole = output_of(train(folder, 3, options + "whole"));
  const auto command = train(folder, 3, options + "stopped");
  const auto stopped = stop(command);
  const auto rest = output_of(command);
  CHECK(
      find(rest, "resumes from step (\\d+)") ==
      find(stopped, "stopped at step (\\d+)"));
  for (const std::string said :
       {"hash (\\d+)", "(epoch 1: .*)\n", "(epoch 2: .*)\n"}) {
    CHECK(find(stopped + rest, said) == find(whole, said));
  }
}

FOLDER_TEST("what cannot be is refused with exit code 1 and the reason") {
  const auto rejected = [&](const std::string& options) {
    const auto command =
        line(folder, "ddprun --nproc-per-node 3 cifar10_resnet " + options);
    return output_of(run(command, kLong), 1);
  };
  CHECK_THAT(
      rejected("--data=none"),
      Has("error: none/cifar-10-batches-bin/data_batch_1.bin "
          "cannot be read: unpack cifar-10-binary.tar.gz"));
  write_cifar(folder / "data", 2, 2);
  CHECK_THAT(rejected("--depth=19"), Has("depth is 19"));
  const auto file = folder / "data/cifar-10-batches-bin/test_batch.bin";
  std::filesystem::resize_file(file, 3074);
  CHECK_THAT(rejected(""), Has("test_batch.bin is incomplete"));
}

FOLDER_TEST("the tutorial's line trains ResNet-101 on four processes") {
  write_cifar(folder / "data", 2, 5);
  stop(line(
      folder,
      "ddprun --grace 240 --nproc-per-node 4 cifar10_resnet --n_epochs=100 "
      "--lr=0.001 --batch_size=32"));
  CHECK(std::filesystem::exists(folder / "cifar10_resnet/latest"));
}

FOLDER_TEST("ResNet-101 trains on processes that it starts") {
  write_cifar(folder / "data", 1, 3);
  output_of(line(
      folder, "cifar10_resnet --world_size=2 --n_epochs=1 --batch_size=2"));
  CHECK(std::filesystem::exists(folder / "cifar10_resnet/weights.pth"));
}

} // namespace ddp::test::cifar10_resnet_test
