#include "cifar10_arguments.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <map>

using CLI::CheckedTransformer;
using CLI::NonNegativeNumber;
using CLI::PositiveNumber;

void add_options(CLI::App& app, Arguments& arguments) {
  auto& a = arguments;
  const std::map<std::string, int64_t> depths{
      {"resnet18", 18},
      {"resnet34", 34},
      {"resnet50", 50},
      {"resnet101", 101},
      {"resnet152", 152}};
  const std::map<std::string, Stem> stems{
      {"cifar", Stem::kCifar}, {"torchvision", Stem::kTorchvision}};
  const std::map<std::string, Schedule> schedules{
      {"constant", Schedule::kConstant},
      {"step", Schedule::kStep},
      {"cosine", Schedule::kCosine}};

  app.add_option(
         "--arch", a.depth, "the net; resnet101 unless another is named")
      ->transform(CheckedTransformer(depths));
  app.add_option(
         "--stem",
         a.stem,
         "its first layers: cifar (a 3x3 convolution, which keeps the "
         "resolution; the default) or torchvision (7x7, for its weights)")
      ->transform(CheckedTransformer(stems));
  app.add_option("--data", a.data, "folder that has cifar-10-batches-bin")
      ->capture_default_str();
  app.add_option("--folder", a.folder, "where checkpoints, weights and log go")
      ->capture_default_str();
  app.add_option("--weights", a.weights, "file of weights to begin with");
  app.add_flag(
      "--resume",
      a.resume,
      "go on with the run in the folder, if there is one");
  app.add_option(
         "--world_size,--world-size",
         a.world_size,
         "start that many processes; not with a launcher")
      ->check(PositiveNumber);
  app.add_option(
         "--n_epochs,--n-epochs",
         a.epochs,
         "epochs in all, over which the schedule goes")
      ->check(PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size,--batch-size", a.batch_size, "images per rank")
      ->check(PositiveNumber)
      ->capture_default_str();
  app.add_option("--max_steps,--max-steps", a.max_steps, "per epoch; 0: all")
      ->check(NonNegativeNumber);
  app.add_option("--lr", a.learning_rate, "learning rate")
      ->check(PositiveNumber)
      ->capture_default_str();
  app.add_option("--schedule", a.schedule, "constant, step or cosine (default)")
      ->transform(CheckedTransformer(schedules));
  app.add_option("--momentum", a.momentum)
      ->check(NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--weight_decay,--weight-decay", a.weight_decay)
      ->check(NonNegativeNumber);
  app.add_option("--seed", a.seed, "of weights, order and augmentation");
  app.add_option("--workers", a.workers, "threads per rank that load images")
      ->check(NonNegativeNumber)
      ->capture_default_str();
}

double learning_rate(const Arguments& arguments, int64_t epoch) {
  const auto done =
      static_cast<double>(epoch) / static_cast<double>(arguments.epochs);
  const auto first = arguments.learning_rate;
  switch (arguments.schedule) {
    case Schedule::kStep:
      return done < 0.5 ? first : done < 0.75 ? first / 10 : first / 100;
    case Schedule::kCosine:
      return first * (1 + std::cos(M_PI * done)) / 2;
    default:
      return first;
  }
}
