#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Returns rank 0's text on all ranks, before they have a store. Collective.
using TextBroadcast = std::function<std::string(const std::string& text)>;

/// Fills in where the ranks meet if no one told them: rank 0 listens at a free
/// port of its own host and says so over `broadcast`. `one_host`: there are no
/// others, so that the loopback interface serves (rank 0's word counts).
/// Collective. Throws `c10::DistNetworkError` if rank 0's host cannot be
/// reached.
void choose_meeting_point(
    LaunchEnvironment& environment,
    const TextBroadcast& broadcast,
    bool one_host,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
