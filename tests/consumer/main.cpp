#include <ddp/ddp.h>
#include <torch/torch.h>

#include <iostream>

namespace {

// d(loss)/d(weight) on rank r is r + 1, so the mean over n ranks is (n + 1)
// / 2.
bool averages_gradients(const ddp::ProcessGroup& group) {
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  net->to(group.device());
  ddp::DistributedDataParallel<torch::nn::Linear> model(net, group);
  auto input = torch::full(
      {1, 1}, static_cast<double>(group.rank() + 1), group.device());
  model->forward(input).sum().backward();
  const auto mean = net->weight.grad().item<double>();
  const auto expected = static_cast<double>(group.size() + 1) / 2;
  std::cout << "rank " << group.rank() << " of " << group.size()
            << ": gradient " << mean << ", expected " << expected << std::endl;
  return mean == expected;
}

// Whether saved values are restored into a module with others, on every rank.
bool restores_checkpoint(
    const std::string& path,
    const ddp::ProcessGroup& group) {
  torch::nn::Linear saved(3, 2);
  torch::nn::init::constant_(saved->weight, 7.0);
  ddp::save_checkpoint(path, *saved, group);
  torch::nn::Linear loaded(3, 2);
  ddp::load_checkpoint(path, *loaded, group);
  return loaded->weight.eq(7.0).all().item<bool>();
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: consumer WORLD_SIZE CHECKPOINT" << std::endl;
    return 2;
  }
  const auto group = ddp::init_process_group();
  const bool passed = group.size() == std::stoll(argv[1]) &&
      averages_gradients(group) && restores_checkpoint(argv[2], group);
  return passed ? 0 : 1;
}
