#pragma once

#include <ddp/commands/timeline/rank_timeline.h>

#include <ostream>

namespace ddp::command {

/// Writes a picture, as SVG: for each rank its computing, its buckets'
/// reductions and its waits, over time.
void write_picture(
    std::ostream& out,
    const std::vector<RankTimeline>& timelines);

} // namespace ddp::command
