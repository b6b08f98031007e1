#pragma once

#include <ddp/module_state.h>
#include <torch/torch.h>

namespace ddp::test {

/// Has another module inside, as DistributedDataParallel has.
struct Wrapper : torch::nn::Module, WrappedModule {
  explicit Wrapper(std::shared_ptr<torch::nn::Module> inner)
      : inner_(register_module("module", std::move(inner))) {}
  torch::nn::Module& wrapped() override {
    return *inner_;
  }
  const torch::nn::Module& wrapped() const override {
    return *inner_;
  }
  std::shared_ptr<torch::nn::Module> inner_;
};

} // namespace ddp::test
