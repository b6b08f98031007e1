#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

/// Tells from the ranks' heartbeats which of them do not get on. Knows no
/// clock: it is shown the time. A timeout of 0 is none.
class ProgressWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  struct Beat {
    bool joined = false;
    bool in_call = false;
    uint64_t beats = 0;
  };

  /// Takes in the beat of each rank, none of one that has ended.
  void see(const std::vector<std::optional<Beat>>& beats, Time now);

  /// Whether no rank that has joined made progress for so long: collectives
  /// make all wait for one, so while one moves none hangs for good.
  bool hangs(Duration timeout, Time now) const;

  /// The ranks, as indices, that have been in a call without a beat for so
  /// long.
  std::vector<size_t> waiting(Duration time, Time now) const;

  /// The job was suspended from then until now: that time does not count.
  void resume(Time suspended, Time now);

 private:
  struct Rank {
    std::optional<Beat> beat;
    Time since;
  };
  std::vector<Rank> ranks_;
};

} // namespace ddp
