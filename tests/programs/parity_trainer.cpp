// The C++ side of the comparison with Python's DistributedDataParallel: trains
// five steps and writes gradients, parameters and buffers of each to a folder.
// Run: ddprun --nproc-per-node 3 parity_trainer FOLDER [--no-reduce]
// tests/parity/ddp_parity.py is the other side.

#include <checkpoint/safetensors.h>
#include <ddp/ddp.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstring>

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear wide{nullptr}, last{nullptr};

  Net() {
    conv = register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(5));
    wide = register_module("wide", torch::nn::Linear(5 * 6 * 6, 1703));
    last = register_module("last", torch::nn::Linear(1703, 7));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv(x)));
    return last(torch::relu(wide(x.flatten(1))));
  }
};

void write_step(
    const Net& net,
    const std::string& folder,
    int64_t rank,
    int64_t step) {
  ddp::StateDict state;
  for (const auto& item : net.named_parameters()) {
    state.insert("grad." + item.key(), item.value().grad());
    state.insert("value." + item.key(), item.value());
  }
  for (const auto& item : net.named_buffers()) {
    state.insert("value." + item.key(), item.value());
  }
  ddp::write_safetensors(
      folder + "/rank" + std::to_string(rank) + "_step" + std::to_string(step) +
          ".safetensors",
      state);
}

int main(int argc, char** argv) {
  TORCH_CHECK(argc >= 2, "the folder is missing");
  const bool reduce = argc < 3 || std::strcmp(argv[2], "--no-reduce") != 0;
  at::set_num_threads(1);
  auto group = ddp::init_process_group();
  torch::manual_seed(42);
  auto net = std::make_shared<Net>();
  ddp::DistributedDataParallel<Net> model(net, group);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::manual_seed(100 + group.rank()); // a shard of its own for each rank
  for (int64_t step = 0; step < 5; ++step) {
    const auto input = torch::randn({4, 3, 8, 8});
    const auto target = torch::randint(0, 7, {4});
    std::optional<ddp::Reducer::NoSyncGuard> off;
    if (!reduce) {
      off.emplace(model->no_sync());
    }
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(input), target)
        .backward();
    optimizer.step();
    write_step(*net, argv[1], group.rank(), step);
  }
  return 0;
}
