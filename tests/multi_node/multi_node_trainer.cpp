// Trains a small net and prints a line for each step, and at the end a hash of
// the parameters, which is the same on all ranks and for each way to start
// them. Run: multi_node_trainer STEPS [INTERFACE]

#include <ddp/ddp.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(
      torch::nn::Linear(64, 512),
      torch::nn::ReLU(),
      torch::nn::Linear(512, 10));
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "unset";
}

} // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::stoll(argv[1]) : 1;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ddp::ProcessGroupOptions options;
  if (argc > 2) {
    options.interface(argv[2]);
  }
  const auto group = ddp::init_process_group(options);
  const auto rank = static_cast<int>(group.rank());
  std::printf(
      "rank %d of %d, local rank %d of %d, %s over %s and %s\n",
      rank,
      static_cast<int>(group.size()),
      static_cast<int>(group.local_rank()),
      static_cast<int>(group.local_size()),
      group.backend().c_str(),
      variable("GLOO_SOCKET_IFNAME"),
      variable("NCCL_SOCKET_IFNAME"));

  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.05);
  const ddp::Reducer reducer(net, group);
  torch::manual_seed(100 + rank); // a different shard for each rank
  for (int64_t step = 1; step <= steps; ++step) {
    const auto data = torch::randn({4, 64});
    optimizer.zero_grad();
    net->forward(data).pow(2).mean().backward();
    optimizer.step();
    std::printf("rank %d: step %ld\n", rank, static_cast<long>(step));
  }
  std::printf(
      "rank %d: hash %016lx\n",
      rank,
      static_cast<unsigned long>(ddp::parameter_hash(*net)));
}
