// examples/cifar10_resnet/cifar10_resnet.cpp with a small net, and several
// numbers of processes: what it counts, what it saves and goes on from, what it
// refuses.
#include <ddp/ddp.h>
#include <examples/cifar10_resnet/cifar10.h>
#include <examples/cifar10_resnet/resnet.h>
#include <tests/support/catch.h>
#include <tests/support/cifar10_files.h>
#include <tests/support/mpirun.h>
#include <tests/support/process.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>

namespace cifar10_resnet_test {

using ddp::test::Command;
using ddp::test::kLong;
using ddp::test::Outcome;
using ddp::test::Process;
using ddp::test::read_text;
using ddp::test::TemporaryFolder;
using ddp::test::variable;
using ddp::test::write_cifar;
using Words = std::vector<std::string>;

namespace {

/// ResNet-18 with the stem that costs little. Its last layer has one pixel, of
/// which batch-norm needs two: no batch may be of one image.
Command command(int ranks, const std::string& folder, const Words& options) {
  Words words{
      variable("DDPRUN"),
      "--nproc-per-node",
      std::to_string(ranks),
      variable("DDP_EXAMPLES") + "/cifar10_resnet",
      "--arch=resnet18",
      "--stem=torchvision",
      "--workers=1",
      "--folder",
      folder};
  words.insert(words.end(), options.begin(), options.end());
  return {words, {{"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}}};
}

Outcome train(int ranks, const std::string& folder, const Words& options) {
  return ddp::test::run(command(ranks, folder, options), kLong);
}

std::string output_of(int ranks, const std::string& folder, Words options) {
  const auto outcome = train(ranks, folder, options);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);
  return outcome.output;
}

/// What the first parentheses of `form` find.
std::string find(const std::string& text, const std::string& form) {
  std::smatch match;
  INFO(text);
  REQUIRE(std::regex_search(text, match, std::regex(form)));
  return match[1];
}

/// The lines of log.csv but for how long epochs took.
Words log_of(const std::string& folder) {
  std::istringstream file(read_text(folder + "/log.csv"));
  Words lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line.substr(0, line.rfind(',')));
  }
  return lines;
}

/// Loss and number of right guesses over the test images, by one process.
std::pair<double, int64_t> evaluate(
    const std::string& weights,
    const std::string& data) {
  ResNet net({18, 10, Stem::kTorchvision});
  ddp::load_checkpoint(weights, net);
  net.eval();
  Cifar10 test(data, Cifar10::Part::kTest);
  std::vector<torch::Tensor> images;
  for (size_t i = 0; i < *test.size(); ++i) {
    images.push_back(test.get(i).data);
  }
  const torch::NoGradGuard no_grad;
  const auto guess = net.forward(torch::stack(images));
  const auto loss = torch::nn::functional::cross_entropy(guess, test.labels());
  return {
      loss.item<double>(),
      guess.argmax(1).eq(test.labels()).sum().item<int64_t>()};
}

/// Returns the step at which it stopped.
std::string stop_in_epoch_1(const Command& command) {
  Process process(command);
  REQUIRE(process.wait_for("to test with", kLong));
  process.signal(SIGTERM);
  const auto outcome = process.finish(kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 128 + SIGTERM);
  return find(outcome.output, "stopped at step (\\d+); --resume");
}

} // namespace

TEST_CASE("each test image is counted once, by however many ranks") {
  const TemporaryFolder folder;
  write_cifar(folder / "data", 4, 13); // 20 to train with
  for (const int ranks : {1, 2, 3}) {
    const auto run = folder / std::to_string(ranks);
    const auto output = output_of(
        ranks,
        run,
        {"--data",
         folder / "data",
         "--n_epochs=1",
         "--batch_size=4",
         "--lr=0.02"});
    CAPTURE(ranks, output);
    CHECK_THAT(
        output,
        ContainsSubstring("20 images to train with, 13 to test with") &&
            ContainsSubstring("equal on all ranks") &&
            ContainsSubstring("epoch 1 100%"));
    const auto [loss, correct] =
        evaluate(run + "/weights.pth", folder / "data");
    CHECK(
        find(output, "\\((\\d+ of \\d+)\\)") ==
        std::to_string(correct) + " of 13");
    const auto line = log_of(run).at(1);
    // 20 images, 20 and 21 with padding, in batches of 4.
    const auto steps = std::map<int, int>{{1, 5}, {2, 3}, {3, 2}}[ranks];
    CHECK(
        find(line, "^(\\d+,\\d+,[^,]+),") ==
        "1," + std::to_string(steps) + ",0.02");
    const auto logged = std::stod(find(line, ",([^,]+),[^,]+$"));
    CHECK(std::abs(logged - loss) < 1e-4 * loss);
  }
}

TEST_CASE("a run that was stopped goes on with the same bits") {
  const TemporaryFolder folder;
  write_cifar(folder / "data", 6, 5);
  Words options{
      "--data",
      folder / "data",
      "--batch-size=2", // 5 steps
      "--resume",
      "--n-epochs=2"};
  const auto whole = output_of(3, folder / "whole", options);
  const auto hash = find(whole, "hash ([0-9a-f]{16})");

  const auto stopped = folder / "stopped";
  const auto step = stop_in_epoch_1(command(3, stopped, options));
  CHECK(std::stoi(step) < 10);
  const auto rest = output_of(3, stopped, options);
  CHECK(find(rest, "goes on from step (\\d+)") == step);
  CHECK(find(rest, "hash ([0-9a-f]{16})") == hash);
  CHECK(log_of(stopped) == log_of(folder / "whole"));
  CHECK(log_of(stopped).size() == 3);

  // An epoch more, of one step.
  options.resize(3);
  options.push_back("--n-epochs=3");
  options.push_back("--max-steps=1");
  const auto outcome = train(3, stopped, options);
  INFO(outcome.output);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(
      outcome.output,
      ContainsSubstring("/stopped' has the checkpoints of an earlier run: "
                        "--resume goes on with it, --folder chooses another"));
  CHECK(log_of(stopped) == log_of(folder / "whole"));
  options.push_back("--resume");
  CHECK_THAT(
      output_of(3, stopped, options),
      ContainsSubstring("goes on from step 10\n"));
  CHECK(find(log_of(stopped).at(3), "^(\\d+,\\d+),") == "3,11");
}

TEST_CASE("a run begins with weights for other classes") {
  const TemporaryFolder folder;
  write_cifar(folder / "data", 2, 2);
  ResNet net({18, 1000, Stem::kTorchvision});
  ddp::save_checkpoint(folder / "pretrained.pth", net);
  const auto output = output_of(
      2,
      folder / "run",
      {"--data",
       folder / "data",
       "--weights",
       folder / "pretrained.pth",
       "--n_epochs=1",
       "--batch_size=5",
       "--lr=1e-30"});
  CHECK_THAT(output, ContainsSubstring("fc.weight is for other classes in '"));
  ResNet trained({18, 10, Stem::kTorchvision});
  ddp::load_checkpoint(folder / "run/weights.pth", trained);
  const auto now = trained.named_parameters();
  for (const auto& entry : net.named_parameters()) {
    if (entry.key().rfind("fc.", 0) != 0) {
      CAPTURE(entry.key());
      CHECK(now[entry.key()].allclose(entry.value(), 0, 1e-20));
    }
  }
}

TEST_CASE("what cannot be is refused with exit code 1 and the reason") {
  const TemporaryFolder folder;
  const auto refused = [&](const Words& options, const std::string& reason) {
    const auto outcome = train(3, folder / "run", options);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 1);
    CHECK_THAT(outcome.output, ContainsSubstring(reason));
    CHECK(!std::filesystem::exists(folder / "run"));
  };
  refused(
      {"--data", folder / "none"},
      "error: rank 0: CIFAR-10 in its binary format was looked for in '" +
          (folder / "none") + "': there is no such folder");
  write_cifar(folder / "data", 2, 2);
  refused(
      {"--data", folder / "data", "--weights", folder / "no.pth"}, "no.pth");
  for (const std::string option :
       {"--arch=resnet19", "--n_epochs=0", "--schedule=linear", "--epoch=3"}) {
    const auto outcome = ddp::test::run(
        Command{{variable("DDP_EXAMPLES") + "/cifar10_resnet", option}, {}},
        kLong);
    INFO(option << ": " << outcome.output);
    CHECK(outcome.exit_code != 0);
    CHECK_THAT(
        outcome.output, ContainsSubstring(option.substr(0, option.find('='))));
  }
}

} // namespace cifar10_resnet_test
