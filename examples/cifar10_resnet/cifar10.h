#pragma once

#include <ddp/random.h>
#include <torch/data/datasets/base.h>
#include <torch/types.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

/// CIFAR-10 in its binary format, in memory: images of 32x32 of ten classes.
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html
class Cifar10 : public torch::data::datasets::Dataset<Cifar10> {
 public:
  enum class Part { kTrain, kTest };

  /// Training images are shifted and mirrored at random. Throws `c10::Error`
  /// with the name of a file that is missing or incomplete.
  Cifar10(const std::string& folder, Part part)
      : augments_(part == Part::kTrain),
        epoch_(std::make_shared<std::atomic<int64_t>>(0)) {
    const auto path = std::filesystem::path(folder) / "cifar-10-batches-bin";
    std::vector<torch::Tensor> records;
    for (int i = 1; augments_ && i <= 5; ++i) {
      records.push_back(read(path / c10::str("data_batch_", i, ".bin")));
    }
    if (!augments_) {
      records.push_back(read(path / "test_batch.bin"));
    }
    const auto all = torch::cat(records);
    labels_ = all.select(1, 0).to(torch::kLong);
    images_ = all.slice(1, 1).contiguous().view({-1, 3, kSide, kSide});
  }

  /// Sets the epoch of all copies.
  void set_epoch(int64_t epoch) {
    *epoch_ = epoch;
  }

  /// An image, float [3, 32, 32] from -1 to 1, and its label, int64 []. The
  /// random changes depend only on epoch and index, not on ranks or workers.
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto image = images_[i];
    if (augments_) {
      std::mt19937_64 random(ddp::sample_seed(/*seed=*/0, *epoch_, index));
      const auto offset = [&] { return static_cast<int64_t>(random() % 5); };
      image = torch::constant_pad_nd(image, {2, 2, 2, 2})
                  .narrow(1, offset(), kSide)
                  .narrow(2, offset(), kSide);
      image = random() % 2 == 0 ? image : image.flip(2);
    }
    return {image.to(torch::kFloat) / 127.5 - 1, labels_[i]};
  }

  torch::optional<size_t> size() const override {
    return images_.size(0);
  }

 private:
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kRecord = 1 + 3 * kSide * kSide; // label, pixels

  static torch::Tensor read(const std::filesystem::path& path) {
    TORCH_CHECK(
        std::filesystem::is_regular_file(path),
        path.string(),
        " cannot be read: unpack cifar-10-binary.tar.gz from "
        "https://www.cs.toronto.edu/~kriz/cifar.html there, or set its folder "
        "with --data");
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    TORCH_CHECK(
        bytes % kRecord == 0,
        path.string(),
        " is incomplete: ",
        bytes,
        " bytes");
    return torch::from_file(
               path.string(), /*shared=*/false, bytes, torch::kByte)
        .view({-1, kRecord});
  }

  bool augments_;
  std::shared_ptr<std::atomic<int64_t>> epoch_;
  torch::Tensor images_;
  torch::Tensor labels_;
};
