#pragma once

#include <ddp/commands/timeline/rank_timeline.h>

#include <ostream>

namespace ddp::command {

/// Writes a trace for Perfetto and chrome://tracing: a process for each rank,
/// with tracks for computation, communication and waits. The trace is an array
/// of events in the Trace Event Format; times are in microseconds from the
/// first event.
void write_trace(std::ostream& out, const std::vector<RankTimeline>& timelines);

} // namespace ddp::command
