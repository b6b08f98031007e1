// A run that can be stopped or killed at any moment, and resumes bit for bit.
// Run: ddprun --nproc-per-node 2 resumable runs/1   (again after Ctrl-C,
// kill, or kill -9; SIGTERM and SIGUSR1 save first)

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <string>

struct Arguments {
  std::string folder;
  int64_t epochs = 3;
  int64_t save_every = 20;
};

/// Points in the plane, and on which side of a curve they are.
torch::data::datasets::TensorDataset make_points() {
  const auto points = torch::rand({4000, 2}) * 2 - 1;
  const auto above = points.select(1, 1) > (points.select(1, 0) * 3).sin();
  return torch::data::datasets::TensorDataset(
      torch::cat({points, above.to(torch::kFloat).unsqueeze(1)}, 1));
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(7, group);
  auto points = make_points(); // the same on all ranks
  torch::nn::Sequential net(
      torch::nn::Linear(2, 64),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.1),
      torch::nn::Linear(64, 1));
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  auto loader = ddp::make_data_loader(
      points.map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      ddp::DistributedSampler(*points.size(), group),
      ddp::DataLoaderOptions(16));
  ddp::seed_rank_streams(7, 0, group); // dropout differs between ranks

  int64_t step = 0;
  ddp::TrainingState run;
  run.add("net", net).add("optimizer", optimizer).add("reducer", reducer);
  run.add("loader", *loader).add("step", step).add_random_state();
  ddp::CheckpointManager checkpoints(
      arguments.folder,
      run,
      group,
      ddp::CheckpointManagerOptions().asynchronous(true));
  const auto found = checkpoints.load();
  if (found) {
    ddp::print(group, "resumes from step ", found->step);
  }

  ddp::StopSignal stop(group);
  for (int64_t epoch = loader->epoch(); epoch < arguments.epochs; ++epoch) {
    loader->set_epoch(epoch);
    ddp::print(group, "epoch ", epoch + 1);
    for (auto& batch : *loader) {
      const auto data = batch.data.to(group.device());
      optimizer.zero_grad();
      torch::binary_cross_entropy_with_logits(
          net->forward(data.narrow(1, 0, 2)), data.narrow(1, 2, 1))
          .backward();
      optimizer.step();
      ++step;
      const bool stops = stop.requested();
      if (stops || step % arguments.save_every == 0) {
        checkpoints.save(step);
      }
      if (stops) {
        checkpoints.wait();
        ddp::print(group, "stopped at step ", step);
        return;
      }
    }
  }
  checkpoints.wait();
  const auto hash = ddp::parameter_hash(*net);
  ddp::print(group, step, " steps, parameters ", hash);
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Trains a net. A run that was stopped, at any moment, resumes when "
      "started again.");
  app.add_option("folder", arguments.folder, "folder of the checkpoints")
      ->required();
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber);
  app.add_option("--save-every", arguments.save_every, "steps")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
