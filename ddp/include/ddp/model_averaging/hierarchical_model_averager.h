#pragma once

#include <ddp/export.h>
#include <ddp/model_averaging/model_averager.h>
#include <torch/arg.h>

#include <map>

namespace ddp {

/// Sizes of groups by period.
using PeriodGroupSizes = std::map<int64_t, int64_t>;

/// Options of `HierarchicalModelAverager`, by Python's names.
struct HierarchicalModelAveragerOptions {
  /// By period, how many neighbouring ranks average after so many steps. The
  /// last is all of them.
  TORCH_ARG(PeriodGroupSizes, period_group_size);

  /// How many steps go without before the first time.
  TORCH_ARG(int64_t, warmup_steps) = 0;
};

/// Averages parameters over small groups often, and over larger ones more
/// seldom: in each step whose number, from 0, is a multiple of a period, over
/// the group of the longest such period.
class DDP_API HierarchicalModelAverager final : public ModelAverager {
 public:
  /// Splits `group` into neighbours. Collective. Throws `c10::ValueError` where
  /// a period or size is below 1, a size does not divide that of `group`, the
  /// last is not that, or `warmup_steps` is below 0.
  HierarchicalModelAverager(
      const ProcessGroup& group,
      const HierarchicalModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  /// By period.
  std::map<int64_t, ProcessGroup> groups_;
  int64_t warmup_steps_;
};

} // namespace ddp
