#pragma once

#include "resnet.h"

#include <cstdint>
#include <string>

namespace CLI {
class App;
} // namespace CLI

/// How the learning rate goes down over the epochs.
enum class Schedule {
  kConstant, ///< not at all
  kStep, ///< to a tenth after half of them, and again after three quarters
  kCosine, ///< along half a cosine, to nearly 0
};

/// What cifar10_resnet is told on its command line.
struct Arguments {
  int64_t depth = 101;
  Stem stem = Stem::kCifar;
  std::string data = "data";
  std::string folder = "cifar10_resnet";
  std::string weights;
  bool resume = false;
  int64_t epochs = 150;
  int64_t batch_size = 64; // of a rank
  int64_t max_steps = 0;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;
  Schedule schedule = Schedule::kCosine;
  uint64_t seed = 0;
  int64_t workers = 4;
  int64_t world_size = 0; // processes to start; 0: none, it is one
};

/// Has `app` fill `arguments`, which have to live as long.
void add_options(CLI::App& app, Arguments& arguments);

/// What an epoch is trained with; `epoch` counts from 0.
double learning_rate(const Arguments& arguments, int64_t epoch);
