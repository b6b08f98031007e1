#pragma once

#include <ddp/internal/export.h>
#include <memory>

namespace ddp {

/// The operation of an all-reduce. `kMean` is the sum divided by the group's
/// size, for floating-point and complex tensors.
enum class ReduceOp { kSum, kMean, kMin, kMax };

/// A collective in progress.
class DDP_API Work {
 public:
  /// Constructs a completed `Work`.
  Work();
  Work(Work&&) noexcept; ///< The moved-from `Work` is completed.
  Work& operator=(Work&&) noexcept; ///< The moved-from `Work` is completed.
  ~Work();

  /// Waits until the tensors may be used: blocks the thread for CPU tensors,
  /// and makes the current stream wait for CUDA tensors. Throws as collectives
  /// do, also after `ProcessGroup::shutdown`.
  void wait();

 private:
  friend class ProcessGroup;
  struct State;
  explicit Work(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

} // namespace ddp
