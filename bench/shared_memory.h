#pragma once

#include <ddp/process_group.h>

#include <atomic>

namespace bench {

/// A tensor in memory that the ranks of one host share, initially all zero.
/// Collective.
at::Tensor shared_tensor(
    const ddp::ProcessGroup& group,
    int64_t count,
    at::ScalarType dtype);

/// Releases all ranks within a microsecond; a barrier over gloo would release
/// one rank a tenth of a step earlier.
class SpinBarrier {
 public:
  explicit SpinBarrier(const ddp::ProcessGroup& group);

  /// Returns when all ranks have made this call. Collective.
  void operator()() const;

 private:
  int64_t ranks_;
  at::Tensor memory_;
  std::atomic<int64_t>* arrived_;
};

} // namespace bench
