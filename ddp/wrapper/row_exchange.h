#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// What a rank tells all others before they exchange data, so that what one of
/// them finds wrong becomes the same error on all.
struct RankStatus {
  /// What the program called and with what the ranks must agree on: "gather to
  /// rank 0".
  std::string call;
  /// What the program has to change on this rank; empty if nothing.
  std::string mistake;
  /// What else has gone wrong on this rank; empty if nothing.
  std::string failure;
  /// What the others need to know.
  std::string content;
};

/// "rank 2" or "all ranks".
std::string name_destination(int64_t destination);

/// What is wrong with a rank that shall send or receive; empty if nothing.
std::string rank_mistake(int64_t rank, const ProcessGroup& group);

/// As `ddp::scatter`. `status` is what this rank has to say to all; if one has
/// a mistake or a failure to tell, nothing is sent.
at::Tensor scatter_rows(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root,
    RankStatus status);

/// As `ddp::gather`, likewise. `noun` is for messages: "share".
at::Tensor gather_rows(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination,
    const char* noun,
    RankStatus status);

} // namespace ddp::detail
