// The tutorial's own net and line in
// examples/cifar10_resnet/cifar10_resnet.cpp.
#include <tests/support/catch.h>
#include <tests/support/cifar10_files.h>
#include <tests/support/mpirun.h>
#include <tests/support/process.h>

#include <csignal>
#include <filesystem>

namespace cifar10_tutorial_test {

using ddp::test::Command;
using ddp::test::kLong;
using ddp::test::Process;
using ddp::test::read_text;
using ddp::test::TemporaryFolder;
using ddp::test::variable;
using ddp::test::write_cifar;

namespace {

/// Runs a shell's line in `folder`, where programs have no paths.
Command line(const TemporaryFolder& folder, const std::string& text) {
  const auto launcher = std::filesystem::path(variable("DDPRUN")).parent_path();
  const auto path = launcher.string() + ":" + variable("DDP_EXAMPLES") + ":" +
      variable("PATH");
  return {
      {"sh", "-c", "cd '" + folder.path() + "' && exec " + text},
      {{"PATH", path}, {"DDP_BACKEND", "gloo"}, {"OMP_NUM_THREADS", "1"}}};
}

} // namespace

TEST_CASE("the tutorial's line trains ResNet-101 on four processes") {
  const TemporaryFolder folder;
  write_cifar(folder / "data", 2, 5);
  Process process(line(
      folder,
      "ddprun --nproc-per-node 4 cifar10_resnet --n_epochs=100 "
      "--lr=0.001 --batch_size=32"));
  const bool began = process.wait_for("to test with", kLong);
  process.signal(SIGTERM);
  const auto outcome = process.finish(kLong);
  INFO(outcome.output);
  REQUIRE(began);
  CHECK(outcome.exit_code == 128 + SIGTERM);
  CHECK_THAT(
      outcome.output,
      ContainsSubstring("4 ranks, backend gloo, device cpu, ResNet-101, 10 "
                        "images to train with, 5 to test with") &&
          ContainsSubstring(" of 5)") && ContainsSubstring("stopped at step "));
  CHECK_THAT(
      read_text(folder / "cifar10_resnet/log.csv"),
      ContainsSubstring("\n1,1,0.001,"));
  CHECK(std::filesystem::exists(folder / "cifar10_resnet/checkpoints/latest"));
}

TEST_CASE("ResNet-101 makes a few steps on processes that it starts") {
  const TemporaryFolder folder;
  write_cifar(folder / "data", 2, 3);
  const auto outcome = ddp::test::run(
      line(
          folder,
          "cifar10_resnet --world_size=2 --n_epochs=1 --batch_size=2 "
          "--max-steps=2"),
      kLong);
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(
      outcome.output,
      ContainsSubstring(" of 3)") && ContainsSubstring("equal on all ranks"));
  CHECK_THAT(
      read_text(folder / "cifar10_resnet/log.csv"),
      ContainsSubstring("\n1,2,0.01,"));
  CHECK(std::filesystem::exists(folder / "cifar10_resnet/weights.pth"));
}

} // namespace cifar10_tutorial_test
