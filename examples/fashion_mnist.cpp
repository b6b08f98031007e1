// Trains a small convolutional net on Fashion-MNIST, data-parallel.
// Run: ddprun --nproc-per-node 2 fashion_mnist --epochs 2

#include "fashion_mnist_data.h"
#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear hidden{nullptr}, output{nullptr};

  Net() {
    using torch::nn::Conv2d;
    using torch::nn::Conv2dOptions;
    conv1 =
        register_module("conv1", Conv2d(Conv2dOptions(1, 16, 3).padding(1)));
    norm1 = register_module("norm1", torch::nn::BatchNorm2d(16));
    conv2 =
        register_module("conv2", Conv2d(Conv2dOptions(16, 32, 3).padding(1)));
    norm2 = register_module("norm2", torch::nn::BatchNorm2d(32));
    hidden = register_module("hidden", torch::nn::Linear(32 * 7 * 7, 128));
    output = register_module("output", torch::nn::Linear(128, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    return output(torch::relu(hidden(x.flatten(1))));
  }
};

struct Arguments {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string checkpoint = "fashion_mnist.safetensors";
  int64_t epochs = 2;
  int64_t batch_size = 64;
  int64_t train_images = 0;
  double learning_rate = 1e-3;
  uint64_t seed = 0;
};

/// Accuracy over the test images, each seen by exactly one rank.
double evaluate(Net& net, const FashionMnist& test, ddp::ProcessGroup& group) {
  torch::NoGradGuard no_grad;
  net.eval();
  auto correct = torch::zeros({1}, torch::kLong);
  const int64_t total = test.labels().size(0);
  const auto images = test.images().slice(0, group.rank(), total, group.size());
  const auto labels = test.labels().slice(0, group.rank(), total, group.size());
  for (int64_t at = 0; at < images.size(0); at += 1000) {
    const auto batch = images.slice(0, at, at + 1000).to(group.device());
    const auto guess = net.forward(batch).argmax(1).cpu();
    correct += guess.eq(labels.slice(0, at, at + 1000)).sum();
  }
  group.all_reduce(correct);
  net.train();
  return correct.item<double>() / static_cast<double>(total);
}

/// One pass over this rank's share of `total` images. Prints the progress at
/// each tenth.
template <typename Loader>
void train_epoch(
    Net& net,
    Loader& loader,
    torch::optim::Optimizer& optimizer,
    const ddp::ProcessGroup& group,
    int64_t total) {
  int64_t done = 0;
  int64_t tenths = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const auto guess = net.forward(batch.data.to(group.device()));
    const auto loss = torch::nn::functional::cross_entropy(
        guess, batch.target.to(group.device()));
    loss.backward(); // gradients are averaged here
    optimizer.step();
    done += batch.data.size(0) * group.size();
    if (10 * done / total > tenths) {
      tenths = 10 * done / total;
      const auto value = loss.template item<double>();
      ddp::print(group, "  ", 10 * tenths, " %: loss ", value);
    }
  }
}

void train(const Arguments& arguments) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(arguments.seed, group);
  auto net = std::make_shared<Net>();
  net->to(group.device());
  ddp::Reducer reducer(net, group);
  torch::optim::Adam optimizer(net->parameters(), arguments.learning_rate);

  FashionMnist train_set(arguments.data, FashionMnist::Part::kTrain);
  FashionMnist test_set(arguments.data, FashionMnist::Part::kTest);
  auto count = static_cast<int64_t>(*train_set.size());
  if (arguments.train_images > 0) {
    count = std::min(count, arguments.train_images);
  }
  ddp::DistributedSampler sampler(
      count, group, ddp::SamplerOptions().seed(arguments.seed));
  auto loader = torch::data::make_data_loader(
      train_set.map(torch::data::transforms::Stack<>()),
      sampler,
      torch::data::DataLoaderOptions(arguments.batch_size));
  const auto total = static_cast<int64_t>(sampler.size()) * group.size();
  ddp::print(group, group.size(), " ranks on ", group.device());

  for (int64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    ddp::print(group, "epoch ", epoch + 1);
    train_epoch(*net, *loader, optimizer, group, total);
    ddp::save_checkpoint(arguments.checkpoint, *net, group);
    const double accuracy = evaluate(*net, test_set, group);
    ddp::print(group, "  test accuracy ", 100 * accuracy, " %");
  }
  ddp::verify_same_parameters(*net, group);
  const auto file = std::filesystem::absolute(arguments.checkpoint);
  const auto hash = ddp::parameter_hash(*net);
  ddp::print(group, "checkpoint: ", file.string());
  ddp::print(group, "parameters: hash ", hash, ", equal on all ranks");
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a small net on Fashion-MNIST, data-parallel.");
  app.add_option("--data", arguments.data, "folder of the four files");
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "images per rank")
      ->check(CLI::PositiveNumber);
  app.add_option("--lr", arguments.learning_rate, "learning rate");
  app.add_option("--seed", arguments.seed);
  app.add_option("--checkpoint", arguments.checkpoint, "file to write");
  app.add_option("--train-images", arguments.train_images, "use the first N")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
