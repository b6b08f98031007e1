#pragma once

#include <ddp/samplers/data_loader.h>
#include <tests/support/catch.h>

namespace ddp::test {

/// The number of samples in the datasets of these tests.
constexpr size_t kSize = 50;

/// Samples that a function computes from their index.
struct Made : torch::data::datasets::Dataset<Made> {
  explicit Made(std::function<at::Tensor(size_t)> function)
      : make(std::move(function)) {}
  torch::data::Example<> get(size_t index) override {
    return {make(index), torch::tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override {
    return kSize;
  }
  std::function<at::Tensor(size_t)> make;
};

inline auto loader_of(
    const DataLoaderOptions& options,
    std::function<at::Tensor(size_t)> make) {
  return make_data_loader(
      Made(std::move(make)).map(torch::data::transforms::Stack<>()),
      torch::data::samplers::SequentialSampler(kSize),
      options);
}

} // namespace ddp::test
