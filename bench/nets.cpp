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

/// Attention and a perceptron, each after a layer norm, with a shortcut.
struct TransformerBlock : torch::nn::Module {
  explicit TransformerBlock(int64_t width)
      : norm1(register_module("norm1", norm(width))),
        norm2(register_module("norm2", norm(width))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        fc1(register_module("fc1", torch::nn::Linear(width, 4 * width))),
        fc2(register_module("fc2", torch::nn::Linear(4 * width, width))) {}

  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  /// [batch, length, width]
  torch::Tensor forward(torch::Tensor x) {
    constexpr int64_t kHead = 64; // channels
    const auto heads = qkv(norm1(x))
                           .unflatten(-1, {3, -1, kHead})
                           .permute({2, 0, 3, 1, 4})
                           .unbind();
    const auto mixed =
        at::scaled_dot_product_attention(heads[0], heads[1], heads[2]);
    x = x + out(mixed.transpose(1, 2).flatten(2));
    return x + fc2(torch::gelu(fc1(norm2(x))));
  }

  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, fc1, fc2;
};

struct Transformer : torch::nn::Module {
  Transformer(int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(register_module(
          std::to_string(i), std::make_shared<TransformerBlock>(width)));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (const auto& block : blocks) {
      x = block->forward(x);
    }
    return x;
  }

  std::vector<std::shared_ptr<TransformerBlock>> blocks;
};

/// Returns an LSTM's outputs without its states.
struct Lstm : torch::nn::Module {
  explicit Lstm(int64_t width)
      : lstm(register_module(
            "lstm",
            torch::nn::LSTM(
                torch::nn::LSTMOptions(width, width).num_layers(2)))) {}

  /// [length, batch, width]
  torch::Tensor forward(const torch::Tensor& x) {
    return std::get<0>(lstm(x));
  }

  torch::nn::LSTM lstm;
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
  if (name == "blocks") {
    return net_of(
        std::make_shared<Transformer>(2, 512), torch::randn({2, 64, 512}));
  }
  if (name == "lstm") {
    return net_of(std::make_shared<Lstm>(256), torch::randn({32, 16, 256}));
  }
  if (name == "wide4096") {
    return net_of(std::make_shared<Mlp>(4, 4096, 0), torch::randn({32, 4096}));
  }
  if (name == "resnet50") {
    return net_of(std::make_shared<ResNet>(50), torch::randn({64, 3, 64, 64}));
  }
  if (name == "transformer") {
    return net_of(
        std::make_shared<Transformer>(6, 1024), torch::randn({8, 256, 1024}));
  }
  TORCH_CHECK_VALUE(name == "resnet18", "unknown net '", name, "'");
  return net_of(std::make_shared<ResNet>(18), torch::randn({4, 3, 32, 32}));
}

} // namespace bench
