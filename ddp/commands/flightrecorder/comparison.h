#pragma once

#include <ddp/commands/flightrecorder/record.h>

#include <ostream>

namespace ddp::command {

/// Writes where the ranks disagree: in each group the first collective that
/// they called differently, or else who has not reached one that others wait
/// in. Returns whether they agree; not so where one left no record.
bool compare(const std::vector<Record>& records, std::ostream& out);

} // namespace ddp::command
