#pragma once

#include <ddp/optimizers.h>

#include <functional>

// Optimizers of any type.

namespace ddp::test {

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    const std::vector<at::Tensor>& parameters)>;

template <typename O, typename Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<at::Tensor>& parameters) {
    return std::make_unique<O>(parameters, options);
  };
}

/// A fused optimizer, and LibTorch's equivalent.
struct FusedKind {
  std::string python; ///< the constructor's call in Python
  MakeOptimizer fused, plain;
};

inline std::vector<FusedKind> fused_kinds() {
  using namespace torch::optim;
  std::vector<FusedKind> kinds;
  const auto sgd = [&](const char* python, const SGDOptions& options) {
    kinds.push_back({python, maker<FusedSGD>(options), maker<SGD>(options)});
  };
  using PlainAdam = torch::optim::Adam;
  const auto adam = [&](const char* python, const AdamOptions& options) {
    kinds.push_back(
        {python, maker<FusedAdam>(options), maker<PlainAdam>(options)});
  };
  sgd("SGD(p, lr=0.1, fused=True)", SGDOptions(0.1));
  sgd("SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True)",
      SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  sgd("SGD(p, lr=0.1, momentum=0.9, dampening=0.3, fused=True)",
      SGDOptions(0.1).momentum(0.9).dampening(0.3));
  sgd("SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True)",
      SGDOptions(0.1).momentum(0.9).nesterov(true));
  adam("Adam(p, lr=0.01, fused=True)", AdamOptions(0.01));
  adam(
      "Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True, fused=True)",
      AdamOptions(0.01).weight_decay(0.1).amsgrad(true));
  const auto adamw = AdamWOptions(0.01).weight_decay(0.1);
  kinds.push_back(
      {"AdamW(p, lr=0.01, weight_decay=0.1, fused=True)",
       maker<FusedAdamW>(adamw),
       maker<AdamW>(adamw)});
  return kinds;
}

} // namespace ddp::test
