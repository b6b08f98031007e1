#pragma once

#include <ddp/process_group.h>
#include <torch/types.h>

/// Sums over images: of their losses, of the right guesses, and how many. They
/// stay on the device, so that adding to them waits for nothing.
class ImageSums {
 public:
  explicit ImageSums(torch::Device device)
      : values_(
            torch::zeros({3}, torch::device(device).dtype(torch::kDouble))) {}

  /// `loss`: the mean over a batch; `guess`: its scores, [N, classes];
  /// `target`: its labels, [N].
  void add(
      const torch::Tensor& loss,
      const torch::Tensor& guess,
      const torch::Tensor& target) {
    const auto count = static_cast<double>(target.size(0));
    values_ += torch::stack(
        {loss.detach().to(torch::kDouble) * count,
         guess.argmax(1).eq(target).sum().to(torch::kDouble),
         torch::full({}, count, values_.options())});
  }

  /// Makes them those of all ranks together. Collective.
  void reduce(const ddp::ProcessGroup& group) {
    group.all_reduce(values_);
  }

  /// The three, to be saved and loaded.
  torch::Tensor& values() {
    return values_;
  }

  double loss() const {
    return at(0) / at(2);
  }
  double accuracy() const {
    return at(1) / at(2);
  }
  int64_t correct() const {
    return static_cast<int64_t>(at(1));
  }
  int64_t count() const {
    return static_cast<int64_t>(at(2));
  }

 private:
  double at(int64_t i) const {
    return values_[i].item<double>();
  }

  torch::Tensor values_;
};
