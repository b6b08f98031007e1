#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/comm_hook.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ddp {

/// Options of `PostLocalSGDHook`, with the names of Python's PostLocalSGDState;
/// `start_iteration` is Python's start_localSGD_iter.
struct PostLocalSGDOptions {
  /// The number of initial backward passes that average across all ranks.
  TORCH_ARG(int64_t, start_iteration) = 0;

  /// The ranks that average their gradients after these passes. Nothing else
  /// may use this group during a backward pass. Unset: the ranks of one host.
  TORCH_ARG(std::optional<ProcessGroup>, subgroup);

  /// Whether ranks then average in subgroups; if false, each rank keeps its own
  /// gradients.
  TORCH_ARG(bool, post_local_gradient_allreduce) = true;
};

/// Post-local SGD: averages gradients across all ranks in the first backward
/// passes, and then only within subgroups. Parameters then diverge; average
/// them regularly with a `ModelAverager`. A Reducer with
/// `check_divergence_every` rejects this hook. A parameter unused in a subgroup
/// may get a gradient of zero on that subgroup's ranks.
///
/// Over gloo, values equal those of Python's post_localSGD_hook bit for bit.
/// Source: Lin, Stich, Patel and Jaggi, https://arxiv.org/abs/1808.07217.
class DDP_API PostLocalSGDHook final : public CommHook {
 public:
  /// Throws `c10::ValueError` if `start_iteration` is below 0. Not collective.
  explicit PostLocalSGDHook(const PostLocalSGDOptions& options = {});
  ~PostLocalSGDHook() override;

  std::string describe() const override;
  bool keeps_ranks_equal() const override {
    return false;
  }

  ProcessGroup connect(const ProcessGroup& group) override;
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const GradBucket& bucket,
      const ProcessGroup& group) override;

  // The number of backward passes.
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ddp
