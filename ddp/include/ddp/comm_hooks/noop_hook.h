#pragma once

#include <ddp/comm_hook.h>
#include <ddp/export.h>

namespace ddp {

/// Leaves each rank its own gradients: how fast training would be if
/// communication cost nothing. Only for measuring that.
class DDP_API NoopHook final : public CommHook {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;
};

} // namespace ddp
