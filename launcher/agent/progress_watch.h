#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

/// Determines from the ranks' heartbeats which ranks make no progress. Uses no
/// clock: callers pass the time. A timeout of 0 means no timeout.
class ProgressWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  struct Beat {
    bool joined = false;
    bool in_call = false;
    uint64_t beats = 0;
  };

  /// Records the beat of each rank; none for a rank that has ended.
  void see(const std::vector<std::optional<Beat>>& beats, Time now) {
    ranks_.resize(beats.size());
    for (size_t i = 0; i < beats.size(); ++i) {
      if (!is_same(ranks_[i].beat, beats[i])) {
        ranks_[i] = {beats[i], now};
      }
    }
  }

  /// Whether no rank that has joined has made progress for `timeout`. In
  /// collectives all ranks wait for one, so the job does not hang while one
  /// rank makes progress.
  bool hangs(Duration timeout, Time now) const {
    bool any_joined = false;
    bool any_moves = false;
    for (const Rank& each : ranks_) {
      const bool joined = each.beat && each.beat->joined;
      any_joined = any_joined || joined;
      any_moves = any_moves || (joined && now - each.since < timeout);
    }
    return timeout.count() > 0 && any_joined && !any_moves;
  }

  /// The indices of the ranks that have been in a call without a beat for
  /// `time`.
  std::vector<size_t> waiting(Duration time, Time now) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto& beat = ranks_[i].beat;
      if (beat && beat->in_call && now - ranks_[i].since >= time) {
        found.push_back(i);
      }
    }
    return found;
  }

  /// The job was suspended from `suspended` until `now`; that time does not
  /// count.
  void resume(Time suspended, Time now) {
    for (Rank& each : ranks_) {
      each.since += now - suspended;
    }
  }

 private:
  struct Rank {
    std::optional<Beat> beat;
    Time since;
  };

  static bool is_same(
      const std::optional<Beat>& one,
      const std::optional<Beat>& other) {
    return one && other && one->joined == other->joined &&
        one->in_call == other->in_call && one->beats == other->beats;
  }

  std::vector<Rank> ranks_;
};

} // namespace ddp
