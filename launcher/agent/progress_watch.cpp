#include <launcher/agent/progress_watch.h>

namespace ddp {
namespace {

using Beat = ProgressWatch::Beat;

bool is_same(const std::optional<Beat>& one, const std::optional<Beat>& other) {
  return one && other && one->joined == other->joined &&
      one->in_call == other->in_call && one->beats == other->beats;
}

} // namespace

void ProgressWatch::see(
    const std::vector<std::optional<Beat>>& beats,
    Time now) {
  ranks_.resize(beats.size());
  for (size_t i = 0; i < beats.size(); ++i) {
    if (!is_same(ranks_[i].beat, beats[i])) {
      ranks_[i] = {beats[i], now};
    }
  }
}

bool ProgressWatch::hangs(Duration timeout, Time now) const {
  bool any_joined = false;
  bool any_moves = false;
  for (const Rank& each : ranks_) {
    const bool joined = each.beat && each.beat->joined;
    any_joined = any_joined || joined;
    any_moves = any_moves || (joined && now - each.since < timeout);
  }
  return timeout.count() > 0 && any_joined && !any_moves;
}

std::vector<size_t> ProgressWatch::waiting(Duration time, Time now) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto& beat = ranks_[i].beat;
    if (beat && beat->in_call && now - ranks_[i].since >= time) {
      found.push_back(i);
    }
  }
  return found;
}

void ProgressWatch::resume(Time suspended, Time now) {
  for (Rank& each : ranks_) {
    each.since += now - suspended;
  }
}

} // namespace ddp
