#include <ddp/metrics.h>

#include <ddp/failure/heartbeat.h>

#include <ATen/ops/tensor.h>

namespace ddp {

double sum(double value, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("sum");
  double result = 0;
  for (const auto& of_rank :
       group.all_gather(at::tensor({value}, at::kDouble))) {
    result += of_rank.item<double>();
  }
  return result;
}

double mean(double value, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("mean");
  return sum(value, group) / static_cast<double>(group.size());
}

void report_progress() noexcept {
  detail::heartbeat::beat();
}

} // namespace ddp
