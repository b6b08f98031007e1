#include <ddp/metrics.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/process_group_impl.h>

#include <ATen/ops/tensor.h>

namespace ddp {
namespace {

/// The sum in rank order. Each rank also sends whether it called `mean`, to
/// detect ranks that made different calls.
double sum_of_call(bool is_mean, double value, const ProcessGroup& group) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  const auto unused_since = impl.unused_since.load();
  double result = 0;
  std::vector<std::string> calls;
  for (const auto& of_rank : group.all_gather(
           at::tensor({value, is_mean ? 1.0 : 0.0}, at::kDouble))) {
    result += of_rank[0].item<double>();
    calls.push_back(of_rank[1].item<double>() != 0 ? "mean" : "sum");
  }
  impl.unused_since = unused_since; // `has_metrics` counts this use
  impl.has_metrics = true;
  detail::check_same_calls(calls);
  return result;
}

} // namespace

double sum(double value, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("sum");
  return sum_of_call(false, value, group);
}

double mean(double value, const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("mean");
  return sum_of_call(true, value, group) / static_cast<double>(group.size());
}

void report_progress() noexcept {
  detail::heartbeat::beat();
}

} // namespace ddp
