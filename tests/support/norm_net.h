#pragma once

#include <torch/torch.h>

namespace ddp::test {

/// A net with running statistics, of `inputs`, `hidden` and `outputs` channels.
struct NormNet : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  NormNet(int64_t inputs, int64_t hidden, int64_t outputs) {
    first = register_module("first", torch::nn::Linear(inputs, hidden));
    norm = register_module("norm", torch::nn::BatchNorm1d(hidden));
    last = register_module("last", torch::nn::Linear(hidden, outputs));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::relu(norm(first(x))));
  }
};

} // namespace ddp::test
