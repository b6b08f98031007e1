#include <ddp/reducer/observers/recorder.h>

#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {
namespace {

/// Python's.
constexpr int64_t kSampledAtFirst = 10;

} // namespace

Recorder::Recorder(int64_t sample_rate, StepRange chosen)
    : state_(std::make_shared<State>()),
      sample_rate_(sample_rate),
      chosen_(chosen) {
  DDP_CHECK_VALUE(
      sample_rate >= 1,
      "sample_rate is {}, and must be 1 or more",
      sample_rate);
}

bool Recorder::records(int64_t step) const {
  return all_ || step <= kSampledAtFirst || step % sample_rate_ == 0 ||
      chosen_.contains(step);
}

void Recorder::forward_began(int64_t step) {
  if (records(step)) {
    forward_began_ = Clock::now();
    forward_ended_.reset();
  }
}

void Recorder::forward_ended() {
  if (forward_began_ && !forward_ended_) {
    forward_ended_ = Clock::now();
  }
}

void Recorder::begin(int64_t step, const std::vector<Bucket>& buckets) {
  on_ = records(step);
  if (!on_) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& timeline = state_->timeline;
    state_->began = Clock::now();
    timeline = {};
    timeline.step = step;
    if (forward_began_ && forward_ended_) {
      timeline.forward_began = *forward_began_ - state_->began;
      timeline.forward_ended = *forward_ended_ - state_->began;
    }
    forward_began_.reset();
  }
  extend(buckets);
}

void Recorder::extend(const std::vector<Bucket>& buckets) {
  if (!on_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  auto& all = state_->timeline.buckets;
  while (all.size() < buckets.size()) {
    const auto& buffer = buckets[all.size()].content.buffer;
    all.emplace_back().bytes = static_cast<int64_t>(buffer.nbytes());
  }
}

void Recorder::note(
    size_t bucket,
    std::optional<BucketTimes::Duration> BucketTimes::*at) {
  if (on_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->timeline.buckets.at(bucket).*at = Clock::now() - state_->began;
  }
}

void Recorder::note(std::optional<BucketTimes::Duration> Timeline::*at) {
  if (on_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->timeline.*at = Clock::now() - state_->began;
  }
}

void Recorder::launching(size_t bucket) {
  if (!on_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  auto& timeline = state_->timeline;
  timeline.buckets.at(bucket).launched = Clock::now() - state_->began;
  timeline.last_collective = "bucket " + std::to_string(bucket + 1) + " of " +
      std::to_string(timeline.buckets.size()) + ", step " +
      std::to_string(timeline.step);
}

void Recorder::launched(const Bucket& bucket) {
  if (!on_) {
    return;
  }
  bucket.future->addCallback(
      [state = state_, index = bucket.content.index, step = timeline().step](
          c10::ivalue::Future& /*future*/) {
        const std::lock_guard<std::mutex> lock(state->mutex);
        if (state->timeline.step == step) { // not after the next has begun
          state->timeline.buckets.at(index).done = Clock::now() - state->began;
        }
      },
      /*uses_future=*/false); // or a GPU's would fork its streams
}

void Recorder::computed(
    const std::vector<size_t>& order,
    int64_t unused_bytes) {
  note(&Timeline::computed);
  sums_.prev_iteration_grad_ready_order_indices = order;
  sums_.unused_parameter_size = unused_bytes;
}

void Recorder::finished() {
  note(&Timeline::finished);
  if (on_) {
    add_up();
  }
}

Timeline Recorder::timeline() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->timeline;
}

Recorder::Clock::time_point Recorder::began() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->began;
}

void Recorder::add_up() {
  using Duration = Statistics::Duration;
  const auto timeline = this->timeline();
  const auto compute = *timeline.computed;
  auto first = Duration::max(); // of the reductions
  auto last = Duration::min();
  sums_.num_buckets_reduced = 0;
  for (const auto& bucket : timeline.buckets) {
    if (bucket.launched && bucket.waited) {
      ++sums_.num_buckets_reduced;
      first = std::min(first, *bucket.launched);
      last = std::max(last, *bucket.waited);
    }
  }
  const bool reduced = sums_.num_buckets_reduced > 0;
  ++sums_.num_timed;
  sums_.backward_compute_time = compute;
  sums_.backward_comm_time = reduced ? last - first : Duration::zero();
  sums_.backward_compute_comm_overlap_time =
      reduced ? std::max(Duration::zero(), compute - first) : Duration::zero();
  sums_.avg_backward_compute_time += sums_.backward_compute_time;
  sums_.avg_backward_comm_time += sums_.backward_comm_time;
  sums_.avg_backward_compute_comm_overlap_time +=
      sums_.backward_compute_comm_overlap_time;
  if (timeline.forward_began) {
    const auto forward = *timeline.forward_ended - *timeline.forward_began;
    ++forwards_;
    sums_.forward_compute_time = forward;
    sums_.avg_forward_compute_time =
        sums_.avg_forward_compute_time.value_or(Duration::zero()) + forward;
  }
}

void Recorder::describe(Statistics& statistics) const {
  statistics = sums_;
  if (sums_.num_timed > 0) {
    statistics.avg_backward_compute_time /= sums_.num_timed;
    statistics.avg_backward_comm_time /= sums_.num_timed;
    statistics.avg_backward_compute_comm_overlap_time /= sums_.num_timed;
  }
  if (forwards_ > 0) {
    *statistics.avg_forward_compute_time /= forwards_;
  }
}

} // namespace ddp::detail
