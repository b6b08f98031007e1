#pragma once

#include <ddp/process_group.h>
#include <ddp/process_group/collective_wait.h>

namespace ddp::detail {

/// A flag that any rank can set and all ranks read in the same step. The cost
/// is small: an all-reduce in host memory runs during the step.
class AgreedFlag {
 public:
  /// `operation` is for error messages.
  AgreedFlag(const ProcessGroup& group, const char* operation);
  AgreedFlag(const AgreedFlag&) = delete;
  AgreedFlag& operator=(const AgreedFlag&) = delete;
  ~AgreedFlag();

  /// Sends `own` to the other ranks, and returns whether any rank passed true
  /// in the previous call; in a group of one, returns `own`. Do not call this
  /// again after it has returned true. Collective; throws like a collective.
  bool exchange(bool own);

  /// Waits at most a second for the all-reduce of the last call, which all
  /// ranks that have not ended have started.
  void finish() noexcept;

 private:
  bool heard();
  void tell(bool own);

  ProcessGroup group_;
  const char* operation_;
  at::Tensor flag_;
  std::optional<Collective> pending_;
};

} // namespace ddp::detail
