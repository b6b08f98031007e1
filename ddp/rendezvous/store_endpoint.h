#pragma once

#include <ddp/environment/environment.h>

namespace ddp::detail {

/// Returns rank 0's text on all ranks, before a store exists. Collective.
using TextBroadcast = std::function<std::string(const std::string& text)>;

/// Sets the address of the store if the environment does not: rank 0 listens at
/// a free port of its host, and sends the address over `broadcast`. If
/// `one_host` is true on rank 0, all ranks are on one host and use the loopback
/// interface. Collective. Throws `c10::DistNetworkError` if rank 0's host
/// cannot be reached.
void choose_store_endpoint(
    LaunchEnvironment& environment,
    const TextBroadcast& broadcast,
    bool one_host,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
