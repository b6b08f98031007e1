#include <ddp/model_averaging.h>

#include <c10/util/Exception.h>

namespace ddp {

PeriodicModelAverager::PeriodicModelAverager(
    const ProcessGroup& group,
    const PeriodicModelAveragerOptions& options)
    : group_(group), options_(options) {
  TORCH_CHECK_VALUE(
      options.period() >= 1,
      "PeriodicModelAverager: period is ",
      options.period(),
      ", expected 1 or more");
  TORCH_CHECK_VALUE(
      options.warmup_steps() >= 0,
      "PeriodicModelAverager: warmup_steps is ",
      options.warmup_steps(),
      ", expected 0 or more");
}

const ProcessGroup* PeriodicModelAverager::group_in(int64_t step) const {
  const auto since = step - options_.warmup_steps();
  return since >= 0 && since % options_.period() == 0 ? &group_ : nullptr;
}

} // namespace ddp
