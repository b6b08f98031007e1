#include <bench/nets.h>

#include <examples/cifar10_resnet/resnet.h>
#include <torch/torch.h>

namespace bench {
namespace {

/// Layers of one width, each followed by a ReLU.
struct Mlp : torch::nn::Module {
  Mlp(int64_t count, int64_t width, int64_t left_out_every)
      : skip(left_out_every) {
    for (int64_t i = 0; i < count; ++i) {
      layers.push_back(
          register_module(std::to_string(i), torch::nn::Linear(width, width)));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (skip == 0 || i % static_cast<size_t>(skip) != 0) {
        x = torch::relu(layers[i](x));
      }
    }
    return x;
  }

  std::vector<torch::nn::Linear> layers;
  int64_t skip;
};

template <typename Module>
Net net_of(const std::shared_ptr<Module>& module, torch::Tensor input) {
  return {
      module,
      [module](const torch::Tensor& x) { return module->forward(x); },
      std::move(input)};
}

} // namespace

Net make_net(const std::string& name) {
  if (name == "mlp200" || name == "mlp200_unused") {
    const int64_t skip = name == "mlp200" ? 0 : 10;
    return net_of(std::make_shared<Mlp>(200, 64, skip), torch::randn({32, 64}));
  }
  if (name == "big100") {
    return net_of(std::make_shared<Mlp>(4, 2560, 0), torch::randn({16, 2560}));
  }
  TORCH_CHECK_VALUE(name == "resnet18", "no net is called '", name, "'");
  return net_of(std::make_shared<ResNet>(18), torch::randn({4, 3, 32, 32}));
}

} // namespace bench
