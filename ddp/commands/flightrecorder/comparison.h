#pragma once

#include <ddp/commands/flightrecorder/record.h>

#include <ostream>

namespace ddp::command {

/// Writes the differences between ranks: for each group, the first collective
/// with different calls, or else the ranks that have not reached a collective
/// in which other ranks wait. Returns whether the ranks agree; false if a
/// rank's record is missing.
bool compare(const std::vector<Record>& records, std::ostream& out);

} // namespace ddp::command
