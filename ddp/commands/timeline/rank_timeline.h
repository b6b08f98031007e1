#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::command {

/// A time of rank 0's clock, in nanoseconds.
using Time = int64_t;

enum class Activity { kForward, kBackward, kReduction, kWait };

/// A period of a rank's activity.
struct Span {
  /// Returns text such as "backward", "bucket 3" or "wait for bucket 3".
  std::string name() const;

  Activity activity;
  int64_t step;
  Time begin;
  Time end;
  /// The bucket's place in the order of reduction, from 1, and its size in
  /// bytes.
  size_t bucket = 0;
  int64_t bytes = 0;
};

/// Spans that do not overlap.
struct Track {
  const char* name;
  std::vector<Span> spans;
};

/// The record of one Reducer on one rank.
struct RankTimeline {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string host;
  std::string reducer;
  /// The maximum error of the times relative to rank 0's clock.
  std::optional<int64_t> clock_error;
  /// The tracks "compute", "communication" (one or more) and "waits".
  std::vector<Track> tracks;
  /// The buckets and the times at which all gradients of each bucket were
  /// ready.
  std::vector<std::pair<size_t, Time>> ready;
};

/// Reads these files and the files in these folders, and returns the timelines
/// in the order of ranks and Reducers. Throws `std::runtime_error` with the
/// name of a file that cannot be read, or that does not match the other files.
std::vector<RankTimeline> read_timelines(const std::vector<std::string>& paths);

/// The first and the last time in all timelines.
std::pair<Time, Time> range_of(const std::vector<RankTimeline>& timelines);

/// Whether the timelines belong to more than one Reducer.
bool are_of_several(const std::vector<RankTimeline>& timelines);

} // namespace ddp::command
