#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

/// Tells from the ranks' heartbeats which are long in one call. Knows no clock:
/// it is shown the time.
class WaitWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kLongTime{10};

  /// Takes in the beats of each rank, none of one that is in no call. The
  /// ranks, as indices, that have been in a call without a beat for kLongTime.
  std::vector<size_t> waiting(
      const std::vector<std::optional<uint64_t>>& beats,
      Time now);

  /// The job was suspended from then until now: that time does not count.
  void resume(Time suspended, Time now);

 private:
  struct Rank {
    std::optional<uint64_t> beats;
    Time since;
  };
  std::vector<Rank> ranks_;
};

} // namespace ddp
