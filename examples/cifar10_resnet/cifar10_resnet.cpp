// Trains a ResNet on CIFAR-10 (in data/cifar-10-batches-bin), data-parallel;
// resumes where the last run in the same folder ended. TensorBoard shows losses
// and accuracies while it runs: tensorboard --logdir cifar10_resnet
// Run: ddprun --nproc-per-node 4 cifar10_resnet --lr=0.001 --batch_size=32

#include "cifar10.h"
#include "event_file.h"
#include "report_errors.h"
#include "resnet.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace {

struct Arguments {
  int64_t depth = 101;
  std::string data = "data";
  std::string folder = "cifar10_resnet";
  int64_t epochs = 150;
  int64_t batch_size = 64; // of a rank
  double learning_rate = 0.01;
  int64_t workers = 4;
  int64_t world_size = 0; // processes to start; 0: run as one
};

/// The sum of losses, the number of right guesses and the number of images of a
/// batch, on the device, so that additions do not wait.
torch::Tensor sums_of(
    const torch::Tensor& loss,
    const torch::Tensor& guess,
    const torch::Tensor& target) {
  return torch::stack(
      {loss.detach() * target.size(0),
       guess.argmax(1).eq(target).sum().to(torch::kFloat),
       torch::full_like(loss, target.size(0))});
}

/// The sums over all test images, each seen by one rank.
template <typename Loader>
torch::Tensor evaluate(
    ResNet& net,
    Loader& loader,
    const ddp::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  net.eval();
  auto sums = torch::zeros({3}, torch::kDouble).to(group.device());
  for (const auto& batch : loader) {
    const auto guess = net.forward(batch.data);
    const auto loss = torch::nn::functional::cross_entropy(guess, batch.target);
    sums += sums_of(loss, guess, batch.target);
  }
  group.all_reduce(sums); // ranks may have different numbers of batches
  return sums;
}

std::string text_of(const torch::Tensor& sums) {
  const auto at = [&](int64_t i) { return sums[i].item<double>(); };
  return c10::str(
      "loss ", at(0) / at(2), ", ", at(1), " of ", at(2), " images right");
}

/// Adds the training and test results of the epoch that ended with `step`.
void add_epoch(
    EventFile& events,
    int64_t step,
    const torch::Tensor& train,
    const torch::Tensor& test) {
  for (const auto& [part, sums] :
       {std::pair{"train", train}, std::pair{"test", test}}) {
    const auto means = (sums / sums[2]).cpu();
    events.add(c10::str(part, "/loss"), step, means[0].item<double>());
    events.add(c10::str(part, "/accuracy"), step, means[1].item<double>());
  }
  events.flush();
}

void train(const Arguments& arguments) {
  const auto group = ddp::init_process_group();
  ddp::StopSignal stop(group);
  ddp::manual_seed(0, group);
  Cifar10 train_set(arguments.data, Cifar10::Part::kTrain);
  Cifar10 test_set(arguments.data, Cifar10::Part::kTest);
  const auto options = ddp::DataLoaderOptions(arguments.batch_size)
                           .workers(arguments.workers)
                           .device(group.device()); // through pinned memory
  const auto loader = ddp::make_data_loader(
      train_set.map(torch::data::transforms::Stack<>()),
      ddp::DistributedSampler(*train_set.size(), group),
      options);
  const auto test_loader = ddp::make_data_loader(
      test_set.map(torch::data::transforms::Stack<>()),
      ddp::EvaluationSampler(*test_set.size(), group),
      options);

  auto net = std::make_shared<ResNet>(arguments.depth);
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(arguments.learning_rate).momentum(0.9));

  int64_t step = 0;
  auto sums = torch::zeros({3}, torch::kDouble).to(group.device()); // so far
  ddp::TrainingState state;
  state.add("net", net).add("optimizer", optimizer).add("reducer", reducer);
  state.add("loader", *loader).add("step", step).add("sums", sums);
  ddp::CheckpointManager checkpoints(
      arguments.folder,
      state,
      group,
      ddp::CheckpointManagerOptions().keep_best(1).asynchronous(true));
  if (checkpoints.load()) {
    ddp::print(group, "resumes from step ", step);
    if (group.rank() > 0) {
      sums.zero_(); // rank 0 has the sums of all ranks
    }
  }

  std::optional<EventFile> events; // only on rank 0
  if (group.rank() == 0) {
    events.emplace(arguments.folder + "/events", step + 1);
  }

  ddp::print(group, loader->size(), " batches of training in an epoch");
  for (auto epoch = loader->epoch(); epoch < arguments.epochs; ++epoch) {
    const auto done = double(epoch) / double(arguments.epochs);
    const auto learning_rate = // along half a cosine, to 0
        arguments.learning_rate * (1 + std::cos(M_PI * done)) / 2;
    optimizer.param_groups()[0].options().set_lr(learning_rate);
    net->train();
    loader->set_epoch(epoch);
    train_set.set_epoch(epoch);
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      const auto guess = net->forward(batch.data);
      const auto loss =
          torch::nn::functional::cross_entropy(guess, batch.target);
      loss.backward(); // averages the gradients over ranks
      optimizer.step();
      sums += sums_of(loss, guess, batch.target);
      ++step;
      if (step % 100 == 0) {
        ddp::print(group, "step ", step, ": loss ", loss.item<double>());
      }
      if (stop.requested()) {
        group.all_reduce(sums);
        checkpoints.save(step);
        checkpoints.wait();
        ddp::print(group, "stopped at step ", step, "; run again to resume");
        return;
      }
    }
    group.all_reduce(sums);
    const auto test = evaluate(*net, *test_loader, group);
    const auto text = "train " + text_of(sums) + "; test " + text_of(test);
    ddp::print(group, "epoch ", epoch + 1, ": ", text);
    if (events) {
      events->add("train/learning_rate", step, learning_rate);
      add_epoch(*events, step, sums, test);
    }
    sums.zero_();
    loader->set_epoch(epoch + 1); // where a checkpoint resumes
    checkpoints.save(step, (test[1] / test[2]).item<double>());
  }
  checkpoints.wait();
  ddp::verify_same_parameters(*net, group);
  ddp::save_checkpoint(arguments.folder + "/weights.pth", *net, group);
  ddp::print(group, "parameters: hash ", ddp::parameter_hash(*net));
}

} // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a ResNet on CIFAR-10, data-parallel.");
  app.add_option("--depth", arguments.depth, "18, 34, 50, 101 or 152");
  app.add_option(
      "--data", arguments.data, "folder that contains cifar-10-batches-bin");
  app.add_option(
      "--folder", arguments.folder, "folder of checkpoints and events");
  app.add_option("--world_size", arguments.world_size, "processes to start");
  app.add_option("--n_epochs", arguments.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch_size", arguments.batch_size, "images per rank")
      ->check(CLI::PositiveNumber);
  app.add_option("--lr", arguments.learning_rate, "learning rate");
  app.add_option("--workers", arguments.workers, "threads that load images")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] {
    if (arguments.world_size == 0) {
      train(arguments); // as a launcher's rank, or alone
    } else {
      ddp::spawn(argc, argv, arguments.world_size, [&] { train(arguments); });
    }
  });
}
