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

  /// Records the beat of each rank; nullopt for a rank that has ended.
  void see(const std::vector<std::optional<Beat>>& beats, Time now);

  /// Whether no rank that has joined has made progress for `timeout`. In
  /// collectives, all ranks may wait for one rank, so the job does not hang
  /// while one rank makes progress.
  bool hangs(Duration timeout, Time now) const;

  /// The indices of the ranks that have been in a call without a beat for
  /// `time`.
  std::vector<size_t> waiting(Duration time, Time now) const;

  /// The job was suspended from `suspended` until `now`; that time does not
  /// count.
  void resume(Time suspended, Time now);

 private:
  struct Rank {
    std::optional<Beat> beat;
    Time since;
  };
  std::vector<Rank> ranks_;
};

} // namespace ddp
