#include "resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <map>
#include <string>

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Sequential;

namespace {

/// Without bias, since batch-norm follows.
Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, size)
                    .stride(stride)
                    .padding(size / 2)
                    .bias(false));
}

/// What both kinds of blocks have: a shortcut around some convolutions.
struct Block : torch::nn::Module {
  void add_convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
    const auto number = std::to_string(convolutions.size() + 1);
    convolutions.push_back(
        register_module("conv" + number, convolution(in, out, size, stride)));
    norms.push_back(register_module("bn" + number, BatchNorm2d(out)));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    auto x = input;
    for (size_t i = 0; i < convolutions.size(); ++i) {
      x = norms[i](convolutions[i](x));
      if (i + 1 < convolutions.size()) {
        x.relu_();
      }
    }
    x += downsample ? downsample->forward(input) : input;
    return x.relu_();
  }

  std::vector<Conv2d> convolutions;
  std::vector<BatchNorm2d> norms;
  Sequential downsample{nullptr};
};

struct BasicBlock : Block {
  static constexpr int64_t kExpansion = 1;

  BasicBlock(
      int64_t in,
      int64_t planes,
      int64_t stride,
      const Sequential& shortcut) {
    add_convolution(in, planes, 3, stride);
    add_convolution(planes, planes, 3, 1);
    if (shortcut) {
      downsample = register_module("downsample", shortcut);
    }
  }
};

struct Bottleneck : Block {
  static constexpr int64_t kExpansion = 4;

  Bottleneck(
      int64_t in,
      int64_t planes,
      int64_t stride,
      const Sequential& shortcut) {
    add_convolution(in, planes, 1, 1);
    add_convolution(planes, planes, 3, stride);
    add_convolution(planes, kExpansion * planes, 1, 1);
    if (shortcut) {
      downsample = register_module("downsample", shortcut);
    }
  }
};

} // namespace

ResNet::ResNet(const ResNetOptions& options) : options_(options) {
  const std::map<int64_t, std::vector<int64_t>> blocks{
      {18, {2, 2, 2, 2}},
      {34, {3, 4, 6, 3}},
      {50, {3, 4, 6, 3}},
      {101, {3, 4, 23, 3}},
      {152, {3, 8, 36, 3}}};
  const auto found = blocks.find(options.depth);
  TORCH_CHECK_VALUE(
      found != blocks.end(),
      "ResNet: depth is ",
      options.depth,
      ", expected 18, 34, 50, 101 or 152");
  const bool small = options.stem == Stem::kCifar;
  conv1_ = register_module(
      "conv1", convolution(3, channels_, small ? 3 : 7, small ? 1 : 2));
  bn1_ = register_module("bn1", BatchNorm2d(channels_));
  if (options.depth < 50) {
    make_layers<BasicBlock>(found->second);
  } else {
    make_layers<Bottleneck>(found->second);
  }
  fc_ = register_module("fc", torch::nn::Linear(channels_, options.classes));
  initialize();
}

template <typename Kind>
void ResNet::make_layers(const std::vector<int64_t>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t planes = 64 << i;
    layers_.push_back(register_module(
        "layer" + std::to_string(i + 1),
        make_layer<Kind>(planes, blocks[i], i == 0 ? 1 : 2)));
  }
}

template <typename Kind>
Sequential ResNet::make_layer(int64_t planes, int64_t blocks, int64_t stride) {
  const int64_t out = planes * Kind::kExpansion;
  Sequential shortcut{nullptr};
  if (stride != 1 || channels_ != out) {
    shortcut =
        Sequential(convolution(channels_, out, 1, stride), BatchNorm2d(out));
  }
  Sequential layer(std::make_shared<Kind>(channels_, planes, stride, shortcut));
  const Sequential none{nullptr};
  for (int64_t i = 1; i < blocks; ++i) {
    layer->push_back(std::make_shared<Kind>(out, planes, 1, none));
  }
  channels_ = out;
  return layer;
}

void ResNet::initialize() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (const auto* convolution = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(
          convolution->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

torch::Tensor ResNet::forward(const torch::Tensor& images) {
  auto x = bn1_(conv1_(images)).relu_();
  if (options_.stem == Stem::kTorchvision) {
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  }
  for (auto& layer : layers_) {
    x = layer->forward(x);
  }
  return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}
