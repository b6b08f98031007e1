// A net in two parts, each on a separate device, trained by several processes.
// Run: ddprun --nproc-per-node 2 model_parallel net.safetensors

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <string>

struct Arguments {
  std::string path;
  std::string device = "auto";
  int64_t layers = 4; // of each part
  int64_t width = 1536;
  int64_t batch_size = 96; // samples per step, over all ranks
  int64_t steps = 20;
};

struct DevicePair {
  torch::Device first{torch::kCPU};
  torch::Device second{torch::kCPU};
};

/// The value of the first of these variables that a launcher has set.
int64_t launcher_number(
    std::initializer_list<const char*> names,
    int64_t none) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) {
      return std::strtoll(value, nullptr, 10);
    }
  }
  return none;
}

/// GPUs 2r and 2r + 1 for the r-th process of a host with enough GPUs, else the
/// CPU twice. Chosen before the group is formed, which then uses these devices.
DevicePair choose_devices(const std::string& wanted) {
  const auto rank = launcher_number(
      {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0);
  const auto size = launcher_number(
      {"LOCAL_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       "SLURM_STEP_TASKS_PER_NODE"},
      rank + 1);
  const auto gpus =
      wanted == "cpu" ? 0 : static_cast<int64_t>(torch::cuda::device_count());
  const bool enough = gpus >= 2 * size;
  TORCH_CHECK_VALUE(
      enough || wanted != "cuda",
      "--device cuda: ",
      size,
      " processes on this host need ",
      2 * size,
      " GPUs, two each, but the number of GPUs is ",
      gpus);
  const auto gpu = [&](int64_t index) {
    return torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(index));
  };
  return enough ? DevicePair{gpu(2 * rank), gpu(2 * rank + 1)} : DevicePair();
}

torch::nn::Sequential make_part(const Arguments& arguments) {
  torch::nn::Sequential part;
  for (int64_t i = 0; i < arguments.layers; ++i) {
    part->push_back(torch::nn::Linear(arguments.width, arguments.width));
    part->push_back(torch::nn::Tanh());
  }
  return part;
}

class SplitNet : public torch::nn::Module {
 public:
  SplitNet(const Arguments& arguments, const DevicePair& devices)
      : devices_(devices),
        first_(register_module("first", make_part(arguments))),
        second_(register_module("second", make_part(arguments))) {
    first_->to(devices.first);
    second_->to(devices.second);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const auto between = first_->forward(input.to(devices_.first));
    return second_->forward(between.to(devices_.second));
  }

 private:
  DevicePair devices_;
  torch::nn::Sequential first_;
  torch::nn::Sequential second_;
};

void train(const Arguments& arguments) {
  const auto devices = choose_devices(arguments.device);
  auto group =
      ddp::init_process_group(ddp::ProcessGroupOptions().device(devices.first));
  TORCH_CHECK_VALUE(
      arguments.batch_size % group.size() == 0,
      "a batch of ",
      arguments.batch_size,
      " cannot be divided evenly among ",
      group.size(),
      " processes");
  ddp::manual_seed(11, group);
  auto net = std::make_shared<SplitNet>(arguments, devices);
  ddp::DistributedDataParallel<SplitNet> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  torch::Tensor loss;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    // All ranks draw the same batch, of which each takes its share.
    const auto batch = torch::randn({arguments.batch_size, arguments.width});
    const auto share = batch.tensor_split(group.size())[group.rank()];
    optimizer.zero_grad();
    // The loss is on the output's device: the first device has enough data.
    loss = torch::mse_loss(
        model->forward(share), share.roll(1, 1).sin().to(devices.second));
    loss.backward();
    optimizer.step();
  }
  ddp::save_checkpoint(arguments.path, *net, group);
  ddp::verify_same_parameters(*net, group);
  loss = loss.detach().to(group.device());
  group.all_reduce(loss, ddp::ReduceOp::kMean);
  const auto both = c10::str(devices.first, " and ", devices.second);
  const auto hash = ddp::parameter_hash(*net);
  ddp::print(group, both, " on rank 0, loss ", loss.item<double>());
  ddp::print(group, "parameters ", hash);
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a net in two parts, on two devices of each process.");
  app.add_option("path", arguments.path, "path of the checkpoint")->required();
  app.add_option("--device", arguments.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--layers", arguments.layers, "layers of each part")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", arguments.width)->check(CLI::PositiveNumber);
  app.add_option(
         "--batch-size",
         arguments.batch_size,
         "samples per step, over all ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
