#pragma once

#include <tests/support/backend_values.h>
#include <tests/support/ranks.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

// For the tests of the shm backend.

namespace ddp::test {

inline ProcessGroup shm_group(
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return init_process_group(
      ProcessGroupOptions().backend("shm").timeout(timeout));
}

inline c10::intrusive_ptr<c10d::Backend> backend_of(const ProcessGroup& group) {
  return group.c10d()->getBackend(c10::kCPU);
}

/// Runs `body` on ranks with their backend.
inline void shm_ranks(
    int size,
    const std::function<void(const c10::intrusive_ptr<c10d::Backend>&)>& body) {
  ranks(size, [&] {
    const auto group = shm_group();
    body(backend_of(group));
  });
}

/// A copy in memory that the ranks share.
inline torch::Tensor in_shared_memory(
    const c10::intrusive_ptr<c10d::Backend>& backend,
    const torch::Tensor& values) {
  auto tensor = backend->allocateTensor(values.numel(), values.options());
  tensor.copy_(values);
  return tensor;
}

} // namespace ddp::test
