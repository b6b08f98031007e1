#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

/// Tells from the ranks' heartbeats when a job no longer makes progress. Knows
/// no clock: it is shown the time.
class HangWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Beat {
    bool joined = false;
    uint64_t beats = 0;
  };

  /// A timeout of 0 is none.
  HangWatch(
      std::chrono::milliseconds hang_timeout,
      std::chrono::milliseconds start_timeout,
      Time start);

  bool enabled() const;

  /// Takes in one beat per living rank. True where, for longer than the
  /// timeout, no rank that has joined made progress: collectives make all wait
  /// for one, so while one moves none hangs for good.
  bool hangs(const std::vector<Beat>& beats, Time now);

  /// The living ranks, as indices, that have not formed their group although
  /// the time for it is up; none before that, and where all have.
  std::vector<size_t> late(const std::vector<Beat>& beats, Time now) const;

  /// The job was suspended from then until now: that time does not count.
  void resume(Time suspended, Time now);

 private:
  std::chrono::milliseconds hang_timeout_;
  std::chrono::milliseconds start_timeout_;
  Time start_;
  Time last_progress_;
  std::vector<uint64_t> last_;
};

} // namespace ddp
