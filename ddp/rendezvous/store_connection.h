#pragma once

#include <c10/util/intrusive_ptr.h>
#include <ddp/environment/environment.h>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// Connects to the key-value store of a job at the numeric address of
/// MASTER_ADDR. Rank 0 serves the store unless the launcher does. The store
/// contains only the keys of `environment.attempt`. Throws
/// `c10::DistNetworkError`.
c10::intrusive_ptr<c10d::Store> connect_to_store(
    const LaunchEnvironment& environment,
    const std::string& address,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
