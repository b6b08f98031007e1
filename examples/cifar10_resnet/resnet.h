#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

/// What an image meets first in a `ResNet`.
enum class Stem {
  /// A 3x3 convolution of stride 1: small images keep their resolution.
  kCifar,
  /// torchvision's: a 7x7 convolution of stride 2 and a 3x3 maximum of stride
  /// 2. An image of 32x32 is one of 1x1 in the last layer then.
  kTorchvision,
};

struct ResNetOptions {
  /// 18 or 34 (two 3x3 convolutions in a block), 50, 101 or 152 (a bottleneck:
  /// 1x1, 3x3 and 1x1).
  int64_t depth = 101;
  int64_t classes = 10;
  Stem stem = Stem::kCifar;
};

/// The residual nets of He et al. (Deep residual learning for image
/// recognition, 2015), as torchvision builds them: names and shapes of
/// parameters and buffers are the same (with its stem), so that weights of
/// either go into the other; the stride of a bottleneck is in its 3x3
/// convolution; and from one seed of LibTorch's generator come the same initial
/// weights to the last bit.
class ResNet : public torch::nn::Module {
 public:
  /// Throws `c10::ValueError` for another depth.
  explicit ResNet(const ResNetOptions& options);

  /// Scores, [N, classes], of images, [N, 3, height, width].
  torch::Tensor forward(const torch::Tensor& images);

  const ResNetOptions& options() const {
    return options_;
  }

 private:
  template <typename Kind>
  torch::nn::Sequential make_layer(
      int64_t planes,
      int64_t blocks,
      int64_t stride);
  template <typename Kind>
  void make_layers(const std::vector<int64_t>& blocks);
  void initialize();

  ResNetOptions options_;
  int64_t channels_ = 64;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_{nullptr};
};
