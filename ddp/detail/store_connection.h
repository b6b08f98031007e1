#pragma once

#include <c10/util/intrusive_ptr.h>
#include <ddp/environment.h>

#include <chrono>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// Connects to the key-value store of a job, which rank 0 serves unless the
/// launcher does; the keys are those of `environment.attempt`. Throws
/// `c10::DistNetworkError`.
c10::intrusive_ptr<c10d::Store> connect_to_store(
    const LaunchEnvironment& environment,
    std::chrono::milliseconds timeout);

} // namespace ddp::detail
