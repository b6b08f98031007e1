#pragma once

#include <ddp/commands/timeline/rank_timeline.h>

#include <ostream>

namespace ddp::command {

/// Writes an SVG picture of the computation, the reductions of buckets and the
/// waits of each rank over time.
void write_picture(
    std::ostream& out,
    const std::vector<RankTimeline>& timelines);

} // namespace ddp::command
