#include <ddp/reducer/observers/recorder.h>

#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {
namespace {

/// As in Python.
constexpr int64_t kSampledAtFirst = 10;

} // namespace

Recorder::Recorder(
    const std::vector<ParameterState>& parameters,
    const BucketStorage& buckets,
    BucketRebuild& rebuild,
    int64_t sample_rate)
    : parameters_(parameters),
      buckets_(buckets),
      rebuild_(rebuild),
      state_(std::make_shared<State>()),
      sample_rate_(sample_rate) {
  DDP_CHECK_VALUE(
      sample_rate >= 1, "sample_rate is {}, expected 1 or more", sample_rate);
}

bool Recorder::records(int64_t step) const {
  return all_ || step <= kSampledAtFirst || step % sample_rate_ == 0 ||
      chosen_.contains(step);
}

void Recorder::forward_began() {
  if (records(step_ + 1)) {
    forward_began_ = Clock::now();
    forward_ended_.reset();
  }
}

void Recorder::forward_ended() {
  if (forward_began_ && !forward_ended_) {
    forward_ended_ = Clock::now();
  }
}

void Recorder::on_begin(const Reduction& reduction) {
  step_ = reduction.step;
  on_ = records(step_);
  if (!on_) {
    return;
  }
  rebuild_.note_order();
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& timeline = state_->timeline;
    state_->began = Clock::now();
    timeline = {};
    timeline.step = step_;
    if (forward_began_ && forward_ended_) {
      timeline.forward_began = *forward_began_ - state_->began;
      timeline.forward_ended = *forward_ended_ - state_->began;
    }
    forward_began_.reset();
  }
  on_new_buckets();
}

void Recorder::on_new_buckets() {
  if (!on_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  auto& all = state_->timeline.buckets;
  while (all.size() < buckets_.size()) {
    const auto& buffer = buckets_.all()[all.size()].content.buffer;
    all.emplace_back().bytes = static_cast<int64_t>(buffer.nbytes());
  }
}

void Recorder::note(
    const Bucket& bucket,
    std::optional<BucketTimes::Duration> BucketTimes::*at) {
  if (on_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->timeline.buckets.at(bucket.content.index).*at =
        Clock::now() - state_->began;
  }
}

void Recorder::note(std::optional<BucketTimes::Duration> Timeline::*at) {
  if (on_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->timeline.*at = Clock::now() - state_->began;
  }
}

void Recorder::on_launch(const Bucket& bucket) {
  if (!on_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  auto& timeline = state_->timeline;
  const auto index = bucket.content.index;
  timeline.buckets.at(index).launched = Clock::now() - state_->began;
  timeline.last_collective = "bucket " + std::to_string(index + 1) + " of " +
      std::to_string(timeline.buckets.size()) + ", step " +
      std::to_string(timeline.step);
}

void Recorder::on_launched(const Bucket& bucket) {
  if (!on_) {
    return;
  }
  bucket.future->addCallback(
      [state = state_, index = bucket.content.index, step = timeline().step](
          c10::ivalue::Future& /*future*/) {
        const std::lock_guard<std::mutex> lock(state->mutex);
        if (state->timeline.step == step) { // not if the next has begun
          state->timeline.buckets.at(index).done = Clock::now() - state->began;
        }
      },
      /*uses_future=*/false); // true would use other streams on a GPU
}

void Recorder::on_computed(const Reduction& reduction) {
  if (!on_) {
    return;
  }
  note(&Timeline::computed);
  sums_.prev_iteration_grad_ready_order_indices = rebuild_.ready_order();
  sums_.unused_parameter_size = 0;
  for (const size_t index : reduction.unused) {
    sums_.unused_parameter_size +=
        static_cast<int64_t>(parameters_[index].tensor.nbytes());
  }
}

void Recorder::on_end(const Reduction& /*reduction*/) {
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
