#include <ddp/detail/recorder.h>

namespace ddp::detail {

Recorder::Recorder(bool enabled)
    : state_(enabled ? std::make_shared<State>() : nullptr) {}

void Recorder::begin(int64_t step, const std::vector<Bucket>& buckets) {
  if (state_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->began = Clock::now();
    state_->timeline = {};
    state_->timeline.step = step;
  }
  extend(buckets);
}

void Recorder::extend(const std::vector<Bucket>& buckets) {
  if (!state_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  auto& all = state_->timeline.buckets;
  while (all.size() < buckets.size()) {
    const auto& buffer = buckets[all.size()].content.buffer;
    all.emplace_back().bytes = static_cast<int64_t>(buffer.nbytes());
  }
}

void Recorder::ready(size_t bucket) {
  if (state_) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->timeline.buckets.at(bucket).ready = Clock::now() - state_->began;
  }
}

void Recorder::launched(const Bucket& bucket) {
  if (!state_) {
    return;
  }
  const auto index = bucket.content.index;
  int64_t step = 0;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& timeline = state_->timeline;
    step = timeline.step;
    timeline.buckets.at(index).launched = Clock::now() - state_->began;
    timeline.last_collective = "bucket " + std::to_string(index + 1) + " of " +
        std::to_string(timeline.buckets.size()) + ", step " +
        std::to_string(timeline.step);
  }
  bucket.future->addCallback(
      [state = state_, index, step](c10::ivalue::Future& /*future*/) {
        const std::lock_guard<std::mutex> lock(state->mutex);
        if (state->timeline.step == step) { // not after the next has begun
          state->timeline.buckets.at(index).done = Clock::now() - state->began;
        }
      },
      /*uses_future=*/false); // or a GPU's would fork its streams
}

Timeline Recorder::timeline() const {
  if (!state_) {
    return {};
  }
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->timeline;
}

} // namespace ddp::detail
