#pragma once

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

/// A shortcut around two 3x3 convolutions, or around a bottleneck: 1x1, 3x3 and
/// 1x1.
class ResNetBlock : public torch::nn::Module {
 public:
  ResNetBlock(int64_t in, int64_t planes, int64_t stride, bool bottleneck)
      : channels_(bottleneck ? 4 * planes : planes) {
    if (bottleneck) {
      add(in, planes, 1, 1);
      add(planes, planes, 3, stride);
      add(planes, channels_, 1, 1);
    } else {
      add(in, planes, 3, stride);
      add(planes, planes, 3, 1);
    }
    if (stride != 1 || in != channels_) {
      downsample_ = register_module(
          "downsample",
          torch::nn::Sequential(
              convolution(in, channels_, 1, stride),
              torch::nn::BatchNorm2d(channels_)));
    }
  }

  /// A convolution without bias, since batch-norm follows.
  static torch::nn::Conv2d convolution(
      int64_t in,
      int64_t out,
      int64_t size,
      int64_t stride) {
    torch::nn::Conv2d result(torch::nn::Conv2dOptions(in, out, size)
                                 .stride(stride)
                                 .padding(size / 2)
                                 .bias(false));
    torch::nn::init::kaiming_normal_(
        result->weight, 0, torch::kFanOut, torch::kReLU);
    return result;
  }

  torch::Tensor forward(const torch::Tensor& input) {
    auto x = input;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      x = norms_[i](convolutions_[i](i == 0 ? x : x.relu_()));
    }
    x += downsample_ ? downsample_->forward(input) : input;
    return x.relu_();
  }

  int64_t channels() const {
    return channels_;
  }

 private:
  void add(int64_t in, int64_t out, int64_t size, int64_t stride) {
    const auto number = std::to_string(convolutions_.size() + 1);
    convolutions_.push_back(
        register_module("conv" + number, convolution(in, out, size, stride)));
    norms_.push_back(
        register_module("bn" + number, torch::nn::BatchNorm2d(out)));
  }

  int64_t channels_;
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential downsample_{nullptr};
};

/// The residual nets of He et al. (Deep residual learning for image
/// recognition, 2015) for small images: as in torchvision, but with a first
/// convolution of 3x3 and stride 1, and no max-pooling after it.
class ResNet : public torch::nn::Module {
 public:
  /// `depth`: 18, 34, 50, 101 or 152; throws `c10::ValueError` for other
  /// values.
  explicit ResNet(int64_t depth, int64_t classes = 10)
      : conv1_(register_module("conv1", ResNetBlock::convolution(3, 64, 3, 1))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(64))) {
    int64_t channels = 64;
    int64_t planes = 64;
    for (const auto count : block_counts(depth)) {
      torch::nn::Sequential layer;
      for (int64_t i = 0; i < count; ++i) {
        const auto block = std::make_shared<ResNetBlock>(
            channels,
            planes,
            /*stride=*/i == 0 && planes > 64 ? 2 : 1,
            /*bottleneck=*/depth >= 50);
        channels = block->channels();
        layer->push_back(block);
      }
      const auto number = std::to_string(layers_.size() + 1);
      layers_.push_back(register_module("layer" + number, layer));
      planes *= 2;
    }
    fc_ = register_module("fc", torch::nn::Linear(channels, classes));
  }

  /// Scores, [N, classes], of images, [N, 3, height, width].
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = bn1_(conv1_(images)).relu_();
    for (auto& layer : layers_) {
      x = layer->forward(x);
    }
    return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  static std::vector<int64_t> block_counts(int64_t depth) {
    const std::map<int64_t, std::vector<int64_t>> counts{
        {18, {2, 2, 2, 2}},
        {34, {3, 4, 6, 3}},
        {50, {3, 4, 6, 3}},
        {101, {3, 4, 23, 3}},
        {152, {3, 8, 36, 3}}};
    constexpr auto expected = ", expected 18, 34, 50, 101 or 152";
    TORCH_CHECK_VALUE(counts.count(depth), "depth is ", depth, expected);
    return counts.at(depth);
  }

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_{nullptr};
};
