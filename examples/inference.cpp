// Forwards a batch of one process on all processes: first a toy net, then a
// measurement of the speed. Run: ddprun --nproc-per-node 2 inference

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>

struct Arguments {
  int64_t batch_size = 1024;
  int64_t width = 1024;
  int64_t repeats = 10;
  bool result_on_all = false;
  bool no_move = false;
  torch::Device input_device = torch::kCPU;
};

/// Two layers that print the sizes of their input and output.
struct ToyNet : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  ddp::ProcessGroup group;

  explicit ToyNet(ddp::ProcessGroup its_group) : group(std::move(its_group)) {
    first = register_module("first", torch::nn::Linear(32, 64));
    second = register_module("second", torch::nn::Linear(64, 64));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const auto output = second(torch::relu(first(input)));
    std::ostringstream line;
    line << "rank " << group.rank() << " of " << group.size() << ": input size "
         << input.sizes() << ", output size " << output.sizes() << " on "
         << output.device() << "\n";
    std::fputs(line.str().c_str(), stdout);
    std::fflush(stdout);
    return output;
  }
};

torch::nn::Sequential make_wide_net(int64_t width) {
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

void forward_three(
    const Arguments& arguments,
    const ddp::ParallelForwardOptions& options,
    const ddp::ProcessGroup& group) {
  const auto net = std::make_shared<ToyNet>(group);
  net->to(group.device());
  torch::Tensor input; // only rank 0 has one
  if (group.rank() == 0) {
    input = torch::randn({3, 32}).to(arguments.input_device);
  }
  const auto output = ddp::parallel_forward(net, input, group, options);
  if (output.defined()) {
    std::ostringstream line;
    line << "rank " << group.rank() << " has the result, size "
         << output.sizes() << " on " << output.device() << "\n";
    std::fputs(line.str().c_str(), stdout);
    std::fflush(stdout);
  }
}

/// The samples per second of `forward`.
double measure(
    const Arguments& arguments,
    const std::function<torch::Tensor()>& forward) {
  forward(); // warms up
  const auto start = std::chrono::steady_clock::now();
  torch::Tensor output;
  for (int64_t i = 0; i < arguments.repeats; ++i) {
    output = forward();
  }
  if (output.defined()) {
    output.flatten()[0].item(); // a GPU may still be at work
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  return static_cast<double>(arguments.batch_size * arguments.repeats) /
      time.count();
}

void compare(
    const Arguments& arguments,
    const ddp::ParallelForwardOptions& options,
    const ddp::ProcessGroup& group) {
  auto net = make_wide_net(arguments.width);
  net->to(group.device());
  net->eval();
  const auto input = torch::randn({arguments.batch_size, arguments.width})
                         .to(arguments.input_device);
  double alone = 0;
  if (group.rank() == 0) {
    const torch::NoGradGuard no_grad;
    alone = measure(
        arguments, [&] { return net->forward(input.to(group.device())); });
  }
  group.barrier(); // until here, only rank 0 computes
  const auto together = measure(arguments, [&] {
    return ddp::parallel_forward(net, input, group, options);
  });
  if (group.rank() == 0) {
    std::printf(
        "%" PRId64 " samples of %" PRId64
        " numbers, %d threads per process: %.0f samples/s by one process, %.0f "
        "by %" PRId64 ": %.2f times as many\n",
        arguments.batch_size,
        arguments.width,
        at::get_num_threads(),
        alone,
        together,
        group.size(),
        together / alone);
  }
}

void infer(const Arguments& arguments) {
  const auto group = ddp::init_process_group();
  ddp::manual_seed(1, group); // the same nets on all ranks
  auto options = ddp::ParallelForwardOptions().move_input(!arguments.no_move);
  if (arguments.result_on_all) {
    options.destination(ddp::kAllRanks);
  }
  forward_three(arguments, options, group);
  compare(arguments, options, group);
}

int main(int argc, char** argv) {
  Arguments arguments;
  std::string input_device = "cpu";
  CLI::App app("Runs forward on all ranks with a batch of rank 0.");
  app.add_option(
         "--batch-size", arguments.batch_size, "samples of the measured batch")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", arguments.width, "width of the measured layers")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--repeats", arguments.repeats, "number of timed forward passes")
      ->check(CLI::PositiveNumber);
  app.add_flag(
      "--all",
      arguments.result_on_all,
      "send the result to all ranks, not only to rank 0");
  app.add_option(
      "--input-device",
      input_device,
      "device of rank 0's batch: cpu, cuda:1, or meta, which has no data and "
      "differs from the net's device on any machine");
  app.add_flag(
      "--no-move",
      arguments.no_move,
      "do not move the batch: fail if it is not on the net's device");
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] {
    arguments.input_device = torch::Device(input_device);
    infer(arguments);
  });
}
