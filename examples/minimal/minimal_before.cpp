// A complete trainer: of one process (minimal_before.cpp), of several
// (minimal.cpp). Run: minimal_before; ddprun --nproc-per-node 2 minimal
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

/// Points around four centers; the last column is the center's number.
torch::Tensor make_points(int64_t count) {
  const auto centres = torch::randn({4, 16});
  const auto labels = torch::arange(count).remainder(4);
  const auto points =
      centres.index_select(0, labels) + torch::randn({count, 16});
  return torch::cat({points, labels.unsqueeze(1)}, 1);
}

int main(int argc, char** argv) {
  const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 5;
  const int64_t batch_size = argc > 2 ? std::atoll(argv[2]) : 64;
  const std::string file = argc > 3 ? argv[3] : "net.pt";
  torch::manual_seed(1);
  auto device = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  torch::nn::Sequential net(
      torch::nn::Linear(16, 64), torch::nn::ReLU(), torch::nn::Linear(64, 4));
  net->to(device);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  torch::data::datasets::TensorDataset points(make_points(1200));
  torch::data::samplers::RandomSampler sampler(*points.size());
  auto loader = torch::data::make_data_loader(
      points.map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      sampler,
      torch::data::DataLoaderOptions(batch_size));

  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    double sum = 0;
    int64_t batches = 0;
    for (auto& batch : *loader) {
      auto data = batch.data.narrow(1, 0, 16).to(device);
      auto target = batch.data.select(1, 16).to(device, torch::kLong);
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(net->forward(data), target);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
      ++batches;
    }
    std::printf("epoch %d: mean loss %.6f\n", int(epoch), sum / batches);
  }
  torch::save(net, file);
}
