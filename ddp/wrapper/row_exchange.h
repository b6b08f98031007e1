#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/process_group.h>
#include <ddp/process_group/agreement/notice.h>

#include <cstdint>
#include <string>

namespace ddp::detail {

/// "rank 2" or "all ranks".
std::string name_destination(int64_t destination);

/// What is wrong with a rank that shall send or receive; empty if nothing.
std::string rank_mistake(int64_t rank, const ProcessGroup& group);

/// As `ddp::scatter`. `notice` is what this rank has to say to all; if one has
/// a mistake or a failure to tell, nothing is sent.
at::Tensor scatter_rows(
    const at::Tensor& input,
    const ProcessGroup& group,
    int64_t root,
    Notice notice);

/// As `ddp::gather`, likewise. `noun` is for messages: "share".
at::Tensor gather_rows(
    const at::Tensor& share,
    const ProcessGroup& group,
    int64_t destination,
    const char* noun,
    Notice notice);

} // namespace ddp::detail
