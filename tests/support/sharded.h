#pragma once

// What tests of sharded optimizers train.
#include <tests/support/nets.h>

#include <ddp/zero_redundancy_optimizer.h>

namespace ddp::test {

template <typename Optimizer>
using Zero = ZeroRedundancyOptimizer<Optimizer>;

/// The same on all ranks.
inline std::shared_ptr<UnevenNet> start_net() {
  torch::manual_seed(3);
  return std::make_shared<UnevenNet>();
}

} // namespace ddp::test
