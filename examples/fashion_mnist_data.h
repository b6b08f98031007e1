#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <string>

/// Fashion-MNIST from its four files (idx format, packed by gzip), in memory:
/// 60,000 training images or 10,000 test images.
/// Source: https://github.com/zalandoresearch/fashion-mnist
class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  enum class Part { kTrain, kTest };

  /// Throws `c10::Error` with the name of a file that is missing or invalid.
  FashionMnist(const std::string& folder, Part part);

  /// An image, float [1, 28, 28] of mean 0 and deviation 1 over the training
  /// images, and its label, int64 [] from 0 to 9.
  torch::data::Example<> get(size_t index) override;

  torch::optional<size_t> size() const override;

  /// All images, [N, 1, 28, 28], and all labels, [N].
  const torch::Tensor& images() const;
  const torch::Tensor& labels() const;

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};
