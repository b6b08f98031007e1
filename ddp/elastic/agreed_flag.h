#pragma once

#include <ddp/process_group.h>
#include <ddp/process_group/collective_wait.h>

namespace ddp::detail {

/// A flag that any rank can raise and all see raised in the same step, at next
/// to no cost: an all-reduce in the host's memory that runs along with the
/// step.
class AgreedFlag {
 public:
  /// `operation` is for the messages of errors.
  AgreedFlag(const ProcessGroup& group, const char* operation);
  AgreedFlag(const AgreedFlag&) = delete;
  AgreedFlag& operator=(const AgreedFlag&) = delete;
  ~AgreedFlag();

  /// Tells the other ranks this one's, and returns what any of them told in the
  /// call before; in a group of one, `own`. The last call is the one that
  /// returns true. Collective; throws as collectives do.
  bool exchange(bool own);

  /// Waits for what the last call began, which the others have come to unless
  /// they end; for a second at most.
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
