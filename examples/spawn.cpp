// One program that starts its own processes: no launcher, and the same main().
// Run: spawn --processes 2

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <iostream>
#include <string>

struct Arguments {
  int64_t processes = 2;
  int64_t steps = 300;
};

constexpr int64_t kPoints = 96; // of a step, over all processes

/// Runs in each process.
void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(3, group);
  torch::nn::Sequential net(
      torch::nn::Linear(1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::Adam optimizer(net->parameters(), 1e-2);

  torch::Tensor loss;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    // All ranks draw the same points, and each takes its share of them.
    const auto points = torch::rand({kPoints, 1}) * 6 - 3;
    const auto share =
        points.tensor_split(group.size())[group.rank()].to(group.device());
    optimizer.zero_grad();
    // A share's part of the mean over all points: shares may differ in size.
    loss = torch::mse_loss(
               net->forward(share), share.sin(), torch::Reduction::Sum) *
        (static_cast<double>(group.size()) / kPoints);
    loss.backward();
    optimizer.step();
  }

  group.all_reduce(loss = loss.detach(), ddp::ReduceOp::kMean);
  const auto hash = std::to_string(ddp::parameter_hash(*net));
  const auto hashes = group.all_gather(hash);
  ddp::print(group, "loss ", loss.item<double>());
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    ddp::print(group, "rank ", rank, ": parameters ", hashes[rank]);
  }
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Fits a sine function in several processes.");
  app.add_option("--processes", arguments.processes)
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] {
    ddp::spawn(argc, argv, arguments.processes, [&] { train(arguments); });
    std::cout << arguments.processes << " processes have ended\n";
  });
}
