#include <ddp/reducer/observers/layout_trial.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace ddp::detail {
namespace {

/// With new buckets memory is touched for the first time.
constexpr size_t kWarmUp = 1;
constexpr size_t kMeasured = 6;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

} // namespace

LayoutTrial::LayoutTrial(size_t parameters) : ready_(parameters) {}

void LayoutTrial::ready(size_t parameter, BucketTimes::Duration time) {
  if (backwards_ >= kWarmUp) {
    ready_[parameter] += seconds(time);
  }
}

bool LayoutTrial::end(const Timeline& timeline) {
  if (backwards_++ < kWarmUp) {
    return false;
  }
  times_.push_back(seconds(timeline.finished.value()));
  reductions_.resize(
      timeline.buckets.size(), std::numeric_limits<double>::infinity());
  auto free = BucketTimes::Duration::zero(); // one is reduced after another
  for (size_t i = 0; i < timeline.buckets.size(); ++i) {
    const auto& bucket = timeline.buckets[i];
    if (bucket.launched && bucket.done) {
      const auto took = *bucket.done - std::max(*bucket.launched, free);
      reductions_[i] = std::min(reductions_[i], std::max(0.0, seconds(took)));
      free = std::max(free, *bucket.done);
    }
  }
  return times_.size() == kMeasured;
}

void LayoutTrial::try_others() {
  before_ = std::exchange(times_, {});
  backwards_ = 0;
}

std::vector<double> LayoutTrial::ready_times() const {
  auto means = ready_;
  for (auto& mean : means) {
    mean /= static_cast<double>(times_.size());
  }
  return means;
}

double LayoutTrial::reduction_time() const {
  double sum = 0;
  for (const double time : reductions_) {
    sum += time < std::numeric_limits<double>::infinity() ? time : 0;
  }
  return sum;
}

double LayoutTrial::backward_time() const {
  return median(times_);
}

double LayoutTrial::backward_time_before() const {
  return median(before_);
}

} // namespace ddp::detail
