#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdlib>

namespace ddp::test {

/// Seeds random values, which are the same in each run, so that a failure is
/// reproducible, but differ between ranks. Does not call at::manual_seed(),
/// which starts CUDA.
inline void seed_by_rank() {
  const char* rank = std::getenv("RANK");
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1000 + (rank ? std::atoi(rank) : 0));
}

} // namespace ddp::test
