#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

/// The first of `addresses`, all of one host, at which something accepts
/// connections. Tries all at once, again and again; empty where `timeout`
/// passes.
std::string first_reachable(
    const std::vector<std::string>& addresses,
    int64_t port,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
