#include <ddp/model_averaging.h>

#include <c10/util/Exception.h>

namespace ddp {
namespace {

void check(const HierarchicalModelAveragerOptions& options, int64_t ranks) {
  const auto& sizes = options.period_group_size();
  TORCH_CHECK_VALUE(
      !sizes.empty(),
      "HierarchicalModelAverager: period_group_size has no entry");
  for (const auto& [period, size] : sizes) {
    TORCH_CHECK_VALUE(
        period >= 1 && size >= 1 && ranks % size == 0,
        "HierarchicalModelAverager: every ",
        period,
        " steps ",
        size,
        " of ",
        ranks,
        " ranks are to average; the period must be positive, and the groups "
        "of equal size");
  }
  TORCH_CHECK_VALUE(
      sizes.rbegin()->second == ranks,
      "HierarchicalModelAverager: the longest period is for ",
      sizes.rbegin()->second,
      " ranks, expected all ",
      ranks);
  TORCH_CHECK_VALUE(
      options.warmup_steps() >= 0,
      "HierarchicalModelAverager: warmup_steps is ",
      options.warmup_steps(),
      ", expected 0 or more");
}

} // namespace

HierarchicalModelAverager::HierarchicalModelAverager(
    const ProcessGroup& group,
    const HierarchicalModelAveragerOptions& options)
    : warmup_steps_(options.warmup_steps()) {
  check(options, group.size());
  for (const auto& [period, size] : options.period_group_size()) {
    groups_.emplace(
        period,
        size == group.size() ? group : group.split(group.rank() / size));
  }
}

const ProcessGroup* HierarchicalModelAverager::group_in(int64_t step) const {
  if (step < warmup_steps_) {
    return nullptr;
  }
  for (auto entry = groups_.rbegin(); entry != groups_.rend(); ++entry) {
    if (step % entry->first == 0) {
      return &entry->second;
    }
  }
  return nullptr;
}

} // namespace ddp
