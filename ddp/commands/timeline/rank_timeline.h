#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::command {

/// In nanoseconds of rank 0's clock.
using Time = int64_t;

struct RecordedBucket {
  int64_t bytes = 0;
  std::optional<Time> ready;
  std::optional<Time> launched;
  std::optional<Time> done;
  std::optional<Time> waiting;
  std::optional<Time> waited;
};

struct RecordedStep {
  int64_t step = 0;
  std::optional<Time> forward_began;
  std::optional<Time> forward_ended;
  Time began = 0;
  Time computed = 0;
  Time finished = 0;
  std::vector<RecordedBucket> buckets;
};

/// What one Reducer of one rank recorded.
struct RankTimeline {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string host;
  std::string reducer;
  /// How wrong its times may be against rank 0's.
  std::optional<int64_t> clock_error;
  std::vector<RecordedStep> steps;
};

/// Reads the files, and those of folders, in the order of reducers and ranks.
/// Throws `std::runtime_error` with the name of one that cannot be read, or
/// that does not go with the others.
std::vector<RankTimeline> read_timelines(const std::vector<std::string>& paths);

/// From the first to the last of all times.
std::pair<Time, Time> range_of(const std::vector<RankTimeline>& timelines);

/// Rows for bars such that none overlap in a row, as few as may be: for each
/// bar (begin and end, by begin) its row.
std::vector<size_t> rows_for(const std::vector<std::pair<Time, Time>>& bars);

/// A bucket's reduction, and its place among the step's, from 1.
struct Reduction {
  const RecordedStep* step;
  const RecordedBucket* bucket;
  size_t number;
  size_t row;
};

/// Those that were started and completed, with rows, in the order of starts.
std::vector<Reduction> reductions_of(const RankTimeline& timeline);

} // namespace ddp::command
