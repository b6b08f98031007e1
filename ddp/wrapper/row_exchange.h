#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// The data that ranks exchange before the rows, so that an error on one rank
/// makes all ranks throw.
struct RankStatus {
  /// The program's call, with the arguments that must be equal on all ranks:
  /// "gather to rank 0".
  std::string call;
  /// An error in the program's arguments on this rank; may be empty.
  std::string mistake;
  /// Another error on this rank; may be empty.
  std::string failure;
  /// Data for the other ranks.
  std::string content;
};

/// Returns "rank 2" or "all ranks".
std::string name_destination(int64_t destination);

/// The error in the argument `rank`, the sender or receiver; empty if `rank` is
/// valid.
std::string rank_mistake(int64_t rank, const ProcessGroup& group);

/// Same as `ddp::scatter`. `status` is this rank's status; if any rank has a
/// mistake or a failure, no rows are sent.
at::Tensor scatter_rows(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root,
    RankStatus status);

/// Same as `ddp::gather`, with `status` as above. `noun`, such as "share", is
/// for messages.
at::Tensor gather_rows(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination,
    const char* noun,
    RankStatus status);

} // namespace ddp::detail
