#pragma once

// Models for tests of sharded optimizers.
#include <tests/support/nets.h>

#include <ddp/zero_redundancy_optimizer.h>

namespace ddp::test {

template <typename Optimizer>
using Zero = ZeroRedundancyOptimizer<Optimizer>;

/// A net with the same values on all ranks.
inline std::shared_ptr<UnevenNet> start_net() {
  torch::manual_seed(3);
  return std::make_shared<UnevenNet>();
}

/// Parameters of ones with these sizes, whose gradients are ones.
inline std::vector<torch::Tensor> with_gradients(
    const std::vector<int64_t>& sizes) {
  std::vector<torch::Tensor> parameters;
  for (const auto size : sizes) {
    parameters.push_back(torch::ones({size}).requires_grad_());
    parameters.back().mutable_grad() = torch::ones({size});
  }
  return parameters;
}

} // namespace ddp::test
