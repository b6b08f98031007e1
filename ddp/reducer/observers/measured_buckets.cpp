#include <ddp/reducer/observers/measured_buckets.h>

#include <ddp/reducer/buckets/bucket_assignment.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace ddp::detail {
namespace {

/// The first backward pass with new buckets touches new memory.
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

/// The minimum counts, since other processes share the machine.
constexpr int kLatencyTrials = 5;

/// The time of an all-reduce of one element, in seconds. Collective.
double measure_latency(const ProcessGroup& group) {
  double least = std::numeric_limits<double>::infinity();
  const auto message = at::zeros({1});
  for (int i = 0; i < kLatencyTrials; ++i) {
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(message);
    least = std::min(least, seconds(std::chrono::steady_clock::now() - start));
  }
  return least;
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
  auto free = BucketTimes::Duration::zero(); // buckets are reduced in turn
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

MeasuredBuckets::MeasuredBuckets(
    const ReducerOptions& options,
    BucketStorage& buckets,
    const BucketRebuild& rebuild,
    const ProcessGroup& group,
    Recorder& recorder)
    : buckets_(buckets),
      rebuild_(rebuild),
      group_(group),
      recorder_(recorder),
      asked_for_(options.bucket_layout() == BucketLayout::kMeasured),
      records_anyway_(options.record()) {}

bool MeasuredBuckets::is_wanted() const {
  const auto& buckets = buckets_.all();
  return asked_for_ && group_.size() > 1 &&
      std::all_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) {
           return bucket.content.buffer.is_cpu();
         });
}

void MeasuredBuckets::start() {
  trial_.reset();
  counts_.clear();
  if (is_wanted()) {
    trial_.emplace(buckets_.tensors().size());
    recorder_.record_all(true);
  }
}

void MeasuredBuckets::end() {
  if (trial_) {
    trial_.reset();
    recorder_.record_all(records_anyway_);
  }
}

void MeasuredBuckets::resume(std::vector<size_t> counts) {
  end();
  counts_ = is_wanted() ? std::move(counts) : std::vector<size_t>();
}

std::vector<BucketIndices> MeasuredBuckets::split(
    const BucketStorage::Order& order) const {
  const std::vector<int64_t> no_limit{std::numeric_limits<int64_t>::max()};
  const auto tensors = buckets_.tensors();
  std::vector<BucketIndices> buckets;
  auto begin = order.begin();
  for (const size_t count : counts_) {
    const auto end = begin + static_cast<int64_t>(count);
    for (auto& bucket : assign_buckets(tensors, no_limit, {begin, end})) {
      buckets.push_back(std::move(bucket));
    }
    begin = end;
  }
  return buckets;
}

void MeasuredBuckets::on_end(const Reduction& /*reduction*/) {
  if (!trial_ || rebuild_.step()) {
    return;
  }
  if (buckets_.orders().size() != 1) {
    end(); // unfrozen parameters have separate buckets
    return;
  }
  if (!trial_->end(recorder_.timeline())) {
    return;
  }
  if (trial_->tries_others()) {
    judge();
  } else {
    try_others();
  }
}

/// Rank 0 decides, from the means of the times over ranks.
void MeasuredBuckets::try_others() {
  auto times = trial_->ready_times();
  times.push_back(trial_->reduction_time());
  auto mean = at::tensor(times, at::kDouble);
  group_.all_reduce(mean, ReduceOp::kMean);
  const auto* values = mean.const_data_ptr<double>();
  times.assign(values, values + mean.numel());
  ReductionCost cost{measure_latency(group_), 0};
  const double moving =
      times.back() - cost.latency * static_cast<double>(buckets_.size());
  const auto sizes = buckets_.sizes();
  const auto bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  cost.per_byte = std::max(0.0, moving) / static_cast<double>(bytes);

  former_order_ = buckets_.orders().front();
  former_buckets_ = buckets_.indices();
  auto order = former_order_;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return times[a] < times[b];
  });
  const auto tensors = buckets_.tensors();
  std::vector<TimedGradient> gradients;
  for (const size_t index : order) {
    gradients.push_back(
        {times[index],
         static_cast<int64_t>(tensors[index].nbytes()),
         static_cast<size_t>(tensors[index].scalar_type())});
  }
  counts_ = cut_by_time(gradients, cost);
  agree_on_cut(order);
  buckets_.clear(/*rebuilt=*/true);
  buckets_.append(order, split(order));
  trial_->try_others();
}

/// Broadcasts rank 0's order and counts.
void MeasuredBuckets::agree_on_cut(BucketStorage::Order& order) {
  const auto size = static_cast<int64_t>(order.size());
  auto message = at::zeros({2 * size}, at::kLong); // padded with zeros
  auto* begin = message.mutable_data_ptr<int64_t>();
  auto* middle = std::copy(order.begin(), order.end(), begin);
  std::copy(counts_.begin(), counts_.end(), middle);
  group_.broadcast(message);
  order.assign(begin, middle);
  counts_.assign(middle, std::find(middle, begin + 2 * size, 0));
}

/// Keeps the new buckets unless the slowest rank is slower than before.
void MeasuredBuckets::judge() {
  auto slowest = at::tensor(
      {trial_->backward_time_before(), trial_->backward_time()}, at::kDouble);
  group_.all_reduce(slowest, ReduceOp::kMax);
  const auto* times = slowest.const_data_ptr<double>();
  if (times[1] > times[0]) {
    counts_.clear();
    buckets_.clear(/*rebuilt=*/true);
    buckets_.append(former_order_, former_buckets_);
  }
  end();
}

} // namespace ddp::detail
