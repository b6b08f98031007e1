// A net in two parts, each on a device of its own, trained by several such
// processes. Run: ddprun --nproc-per-node 2 model_parallel net.safetensors

#include "report_errors.h"

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

struct Arguments {
  std::string path;
  std::string device = "auto";
  int64_t layers = 4; // of each part
  int64_t width = 1536;
  int64_t batch_size = 96; // of all ranks together
  int64_t steps = 20;
};

struct DevicePair {
  torch::Device first{torch::kCPU};
  torch::Device second{torch::kCPU};
};

/// The number that a launcher has put into one of some variables.
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

/// GPUs 2r and 2r + 1 for the r-th process of a host that has so many, else
/// twice the CPU. Known before the group is formed, which then takes no other.
DevicePair choose_devices(const std::string& wanted) {
  const auto rank = launcher_number(
      {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0);
  const auto size = launcher_number(
      {"LOCAL_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       "SLURM_NTASKS_PER_NODE"},
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
      " GPUs, two each, but there are ",
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

/// Peaks of this process's memory in MB, a phase at a time.
class MemoryPeaks {
 public:
  explicit MemoryPeaks(DevicePair devices) : devices_(devices) {}

  /// Begins a phase.
  void reset() {
    std::ofstream("/proc/self/clear_refs") << 5; // the peak is what is there
    for_each_gpu([](c10::DeviceAllocator& memory, torch::DeviceIndex gpu) {
      memory.resetPeakStats(gpu);
    });
  }

  /// Ends it: the peak since, of the host's memory and, where there are GPUs,
  /// that of both together.
  void print(const char* phase, const ddp::ProcessGroup& group) {
    const auto host = gathered(host_peak(), group);
    const auto gpu = gathered(gpu_peak(), group);
    if (group.rank() == 0) {
      print_line(phase, "memory", host);
      if (devices_.first.is_cuda()) {
        print_line(phase, "GPU memory", gpu);
      }
    }
  }

 private:
  template <typename Function>
  void for_each_gpu(Function&& function) {
    if (!devices_.first.is_cuda()) {
      return;
    }
    auto& memory = *at::getDeviceAllocator(torch::kCUDA);
    const auto count = static_cast<int64_t>(torch::cuda::device_count());
    for (int64_t i = 0; memory.initialized() && i < count; ++i) {
      function(memory, static_cast<torch::DeviceIndex>(i));
    }
  }

  static double host_peak() {
    std::ifstream file("/proc/self/status");
    double kilobytes = 0;
    for (std::string word; file >> word;) {
      if (word == "VmHWM:") {
        file >> kilobytes;
      }
    }
    return kilobytes / 1e3;
  }

  /// Throws where there is memory on another process's GPU.
  double gpu_peak() {
    double bytes = 0;
    for_each_gpu([&](c10::DeviceAllocator& memory, torch::DeviceIndex gpu) {
      const auto peak = memory.getDeviceStats(gpu).reserved_bytes[0].peak;
      const bool own =
          gpu == devices_.first.index() || gpu == devices_.second.index();
      TORCH_CHECK(own || peak == 0, peak, " bytes on foreign GPU ", int(gpu));
      bytes += static_cast<double>(peak);
    });
    return bytes / 1e6;
  }

  static std::vector<double> gathered(
      double value,
      const ddp::ProcessGroup& group) {
    std::vector<double> values;
    for (const auto& text : group.all_gather(std::to_string(value))) {
      values.push_back(std::stod(text));
    }
    return values;
  }

  static void print_line(
      const char* phase,
      const char* what,
      const std::vector<double>& values) {
    auto sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const auto median =
        (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    std::printf("%s: peak of %s in MB", phase, what);
    for (const auto value : values) {
      std::printf(" %.0f", value);
    }
    std::printf("; rank 0 has %.3f of the median\n", values[0] / median);
  }

  DevicePair devices_;
};

/// What the net has to learn, alike on all ranks: a batch and its answer.
struct Task {
  torch::Tensor input;
  torch::Tensor target;

  static Task draw(const Arguments& arguments) {
    const auto input = torch::randn({arguments.batch_size, arguments.width});
    return {input, input.roll(1, 1).sin()};
  }

  /// This rank's share.
  Task share(const ddp::ProcessGroup& group) const {
    const auto parts = input.tensor_split(group.size());
    const auto targets = target.tensor_split(group.size());
    return {parts[group.rank()], targets[group.rank()]};
  }
};

void train(const Arguments& arguments) {
  const auto devices = choose_devices(arguments.device);
  auto group =
      ddp::init_process_group(ddp::ProcessGroupOptions().device(devices.first));
  TORCH_CHECK_VALUE(
      arguments.batch_size % group.size() == 0,
      "a batch of ",
      arguments.batch_size,
      " cannot be shared by ",
      group.size(),
      " processes evenly");
  ddp::manual_seed(11, group);
  MemoryPeaks peaks(devices);

  peaks.reset();
  auto net = std::make_shared<SplitNet>(arguments, devices);
  ddp::DistributedDataParallel<SplitNet> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  peaks.print("construct", group);

  peaks.reset();
  torch::Tensor loss;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    const auto task = Task::draw(arguments).share(group);
    optimizer.zero_grad();
    // The loss is where the output is: the first device has enough to hold.
    loss = torch::mse_loss(
        model->forward(task.input), task.target.to(devices.second));
    loss.backward();
    optimizer.step();
  }
  peaks.print("train", group);

  peaks.reset();
  ddp::save_checkpoint(arguments.path, *net, group);
  peaks.print("save", group);

  const auto hash = ddp::parameter_hash(*net);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) {
      parameter.zero_();
    }
  }
  peaks.reset();
  ddp::load_checkpoint(arguments.path, *net, group);
  peaks.print("load", group);
  ddp::verify_same_parameters(*net, group);
  TORCH_CHECK(
      ddp::parameter_hash(*net) == hash,
      "what was loaded is not what was saved");

  loss = loss.detach().to(group.device());
  group.all_reduce(loss, ddp::ReduceOp::kMean);
  if (group.rank() == 0) {
    std::printf(
        "%s and %s on rank 0, loss %.7f, parameters %016" PRIx64 "\n",
        devices.first.str().c_str(),
        devices.second.str().c_str(),
        loss.item<double>(),
        hash);
  }
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A net in two parts, on two devices of each process.");
  app.add_option("path", arguments.path, "of the checkpoint")->required();
  app.add_option("--device", arguments.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--layers", arguments.layers, "of each part")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", arguments.width)->check(CLI::PositiveNumber);
  app.add_option("--batch-size", arguments.batch_size, "of all ranks together")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return report_errors([&] { train(arguments); });
}
