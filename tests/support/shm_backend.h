#pragma once

#include <tests/support/backend_values.h>
#include <tests/support/ranks.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

// For the tests of the shm backend.

namespace ddp::test {

inline ProcessGroup shm_group() {
  return init_process_group(
      ProcessGroupOptions().backend("shm").timeout(std::chrono::seconds(20)));
}

inline BackendPtr backend_of(const ProcessGroup& group) {
  return group.c10d()->getBackend(c10::kCPU);
}

/// A RANKS_TEST whose body has a `group` over shared memory, its `backend`, and
/// `whole`, of which `group` is a duplicate.
#define SHM_TEST(...)                              \
  DDP_TEST_BY(                                     \
      run_shm_test,                                \
      ([[maybe_unused]] const ProcessGroup& whole, \
       [[maybe_unused]] ProcessGroup group,        \
       [[maybe_unused]] BackendPtr backend),       \
      __VA_ARGS__)
inline void run_shm_test(
    void (*body)(const ProcessGroup&, ProcessGroup, BackendPtr),
    const char* /*title*/,
    const Sizes& sizes = 3) {
  for (const int size : sizes) {
    ranks(size, [&] {
      const auto whole = shm_group();
      auto group = whole.duplicate();
      auto backend = backend_of(group);
      // The body has the only `group`, which it may destroy.
      body(whole, std::exchange(group, whole), std::move(backend));
    });
  }
}

/// A copy of a tensor in memory that the ranks share.
inline torch::Tensor in_shared_memory(
    const BackendPtr& backend,
    const torch::Tensor& values) {
  auto tensor = backend->allocateTensor(values.numel(), values.options());
  tensor.copy_(values);
  return tensor;
}

} // namespace ddp::test
