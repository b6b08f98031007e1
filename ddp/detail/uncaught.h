#pragma once

#include <ddp/detail/failure_board.h>

#include <memory>

namespace ddp::detail {

/// From now on an exception that nobody catches is written to the file that
/// TORCHELASTIC_ERROR_FILE names, where it is set, and to `board`, which may be
/// null, for all groups. What `std::terminate` did before it does afterwards. A
/// later call replaces the board.
void report_uncaught(const std::shared_ptr<FailureBoard>& board);

} // namespace ddp::detail
