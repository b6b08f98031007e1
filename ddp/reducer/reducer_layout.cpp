#include <ddp/reducer/reducer_impl.h>

#include <ddp/reducer/core/bucket_layout.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

// Buckets that are cut from measured times.

namespace ddp {
namespace {

/// The least of a few: others share the machine.
constexpr int kLatencyTrials = 5;

/// What a reduction of next to nothing takes, in seconds. Collective.
double measure_latency(const ProcessGroup& group) {
  double least = std::numeric_limits<double>::infinity();
  const auto message = at::zeros({1});
  for (int i = 0; i < kLatencyTrials; ++i) {
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(message);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

} // namespace

bool ReducerImpl::trial_wanted() const {
  return options_.bucket_layout() == BucketLayout::kMeasured &&
      group_.size() > 1 &&
      std::all_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
           return bucket.content.buffer.is_cpu();
         });
}

void ReducerImpl::start_trial() {
  if (trial_wanted()) {
    trial_.emplace(parameters_.size());
    recorder_.record_all(true);
  }
}

/// The buckets of `counts` neighbours each in `order`.
std::vector<BucketIndices> ReducerImpl::split(
    const std::vector<size_t>& order,
    const std::vector<size_t>& counts) const {
  const std::vector<int64_t> no_limit{std::numeric_limits<int64_t>::max()};
  std::vector<BucketIndices> buckets;
  auto begin = order.begin();
  for (const size_t count : counts) {
    const auto end = begin + static_cast<int64_t>(count);
    for (auto& bucket : assign_buckets(tensors(), no_limit, {begin, end})) {
      buckets.push_back(std::move(bucket));
    }
    begin = end;
  }
  return buckets;
}

/// After a backward: goes on to other buckets once enough has been measured.
void ReducerImpl::advance_trial() {
  if (orders_.size() != 1) {
    end_trial(); // parameters that were unfrozen have buckets of their own
    return;
  }
  const bool settles_later = rebuild_step_.has_value();
  if (settles_later || !trial_->end(recorder_.timeline())) {
    return;
  }
  if (trial_->tries_others()) {
    judge_layout();
  } else {
    try_measured_layout();
  }
}

/// Rank 0 decides, from times that are the mean over ranks.
void ReducerImpl::try_measured_layout() {
  auto times = trial_->ready_times();
  times.push_back(trial_->reduction_time());
  auto mean = at::tensor(times, at::kDouble);
  group_.all_reduce(mean, ReduceOp::kMean);
  const auto* values = mean.const_data_ptr<double>();
  times.assign(values, values + mean.numel());
  detail::ReductionCost cost{measure_latency(group_), 0};
  const double moving =
      times.back() - cost.latency * static_cast<double>(buckets_.size());
  const auto sizes = bucket_sizes();
  const auto bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  cost.per_byte = std::max(0.0, moving) / static_cast<double>(bytes);

  former_order_ = orders_.front();
  former_buckets_ = bucket_indices();
  auto& order = orders_.front();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return times[a] < times[b];
  });
  std::vector<detail::TimedGradient> gradients;
  for (const size_t index : order) {
    const auto& tensor = parameters_[index].tensor;
    gradients.push_back(
        {times[index],
         static_cast<int64_t>(tensor.nbytes()),
         static_cast<size_t>(tensor.scalar_type())});
  }
  counts_ = detail::cut_by_time(gradients, cost);
  agree_on_cut();
  buckets_.clear();
  install(split(order, counts_));
  trial_->try_others();
  laid_out_anew_ = true;
}

/// Gives all ranks rank 0's order and cut.
void ReducerImpl::agree_on_cut() {
  auto& order = orders_.front();
  const auto size = static_cast<int64_t>(order.size());
  auto message = at::zeros({2 * size}, at::kLong); // then zeros
  auto* begin = message.mutable_data_ptr<int64_t>();
  auto* middle = std::copy(order.begin(), order.end(), begin);
  std::copy(counts_.begin(), counts_.end(), middle);
  group_.broadcast(message);
  order.assign(begin, middle);
  counts_.assign(middle, std::find(middle, begin + 2 * size, 0));
}

/// Keeps the new buckets where no rank is slower with them than the slowest was
/// before.
void ReducerImpl::judge_layout() {
  auto slowest = at::tensor(
      {trial_->backward_time_before(), trial_->backward_time()}, at::kDouble);
  group_.all_reduce(slowest, ReduceOp::kMax);
  const auto* times = slowest.const_data_ptr<double>();
  if (times[1] > times[0]) {
    orders_.front() = former_order_;
    counts_.clear();
    buckets_.clear();
    install(former_buckets_);
  }
  end_trial();
}

void ReducerImpl::end_trial() {
  trial_.reset();
  recorder_.record_all(options_.record());
}

} // namespace ddp
