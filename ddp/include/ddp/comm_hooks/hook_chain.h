#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/comm_hook.h>
#include <ddp/export.h>

#include <memory>
#include <string>
#include <vector>

namespace ddp {

/// Hooks one behind the other: each one's result is the next one's buffer, and
/// the last one's that of the bucket. For instance one that clips this rank's
/// gradients, and one that reduces them.
///
/// Where a hook takes scaled gradients, they are divided for it, so an
/// `AllReduceHook` averages. On the CPU hooks of a chain are called on a thread
/// of the chain's, one bucket after another, and get connections of their own.
class DDP_API HookChain final : public CommHook {
 public:
  /// Throws `c10::ValueError` where there is none, or one is null.
  explicit HookChain(std::vector<std::shared_ptr<CommHook>> hooks);
  ~HookChain() override;

  std::string describe() const override;

  /// What the first one says.
  bool takes_scaled_gradients() const override;

  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // Those of the hooks that have one, by their places.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  c10::IValue rank_state_dict() const override;
  void load_rank_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
