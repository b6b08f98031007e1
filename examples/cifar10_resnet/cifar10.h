#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

/// CIFAR-10 in its binary format, in memory: 50,000 images of 32x32 to train
/// with or 10,000 to test with, of ten classes.
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html
class Cifar10 : public torch::data::datasets::Dataset<Cifar10> {
 public:
  enum class Part { kTrain, kTest };

  /// Reads data_batch_1.bin to data_batch_5.bin, or test_batch.bin, from
  /// `folder` or from cifar-10-batches-bin in it. Files may have any number of
  /// records. Throws `c10::Error` naming the files that are missing, and where
  /// to get them, or the one that is not as expected.
  Cifar10(const std::string& folder, Part part);

  /// From now on each image is shifted by up to two pixels, black coming in
  /// from the edges, and mirrored or not, at random: by `seed`, the epoch and
  /// the image's index alone, so that neither ranks nor workers matter.
  void augment(uint64_t seed);

  /// Says which epoch begins, to all copies.
  void set_epoch(int64_t epoch);

  /// An image, float [3, 32, 32] from -1 to 1, and its label, int64 [].
  torch::data::Example<> get(size_t index) override;

  torch::optional<size_t> size() const override;

  /// All images as they are in the files, bytes [N, 3, 32, 32], and all labels,
  /// [N].
  const torch::Tensor& images() const;
  const torch::Tensor& labels() const;

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
  std::optional<uint64_t> seed_;
  std::shared_ptr<std::atomic<int64_t>> epoch_;
};
