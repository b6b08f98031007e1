#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ddp::test {

/// A dataset whose samples are their own indices.
struct Numbers : torch::data::datasets::Dataset<Numbers, size_t> {
  explicit Numbers(size_t count) : count_(count) {}
  size_t get(size_t index) override {
    return index;
  }
  std::optional<size_t> size() const override {
    return count_;
  }
  size_t count_;
};

/// All indices that a sampler has left.
template <typename Sampler>
std::vector<size_t> drain(Sampler& sampler, size_t batch_size = 7) {
  std::vector<size_t> all;
  while (const auto batch = sampler.next(batch_size)) {
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

} // namespace ddp::test
