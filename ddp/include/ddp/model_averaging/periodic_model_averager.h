#pragma once

#include <ddp/export.h>
#include <ddp/model_averaging/model_averager.h>
#include <torch/arg.h>

namespace ddp {

/// Options of `PeriodicModelAverager`, by Python's names.
struct PeriodicModelAveragerOptions {
  /// After how many steps parameters are averaged again.
  TORCH_ARG(int64_t, period) = 1;

  /// How many steps go without before the first time.
  TORCH_ARG(int64_t, warmup_steps) = 0;
};

/// Averages parameters over `group` every `period` steps from `warmup_steps`
/// on.
class DDP_API PeriodicModelAverager final : public ModelAverager {
 public:
  /// Throws `c10::ValueError` for a period below 1 or warm-up below 0.
  PeriodicModelAverager(
      const ProcessGroup& group,
      const PeriodicModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
};

} // namespace ddp
