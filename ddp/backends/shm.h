#pragma once

#include <ddp/backends/common/backend.h>

#include <cstdint>
#include <vector>

namespace ddp::backends::shm {

/// The reason why this process cannot share memory with the other processes of
/// its host, `ranks` in total; empty if this process can.
std::string unavailable(int64_t ranks);

/// Creates this library's backend for CPU tensors of ranks that share a host.
/// All ranks map shared memory, which the system frees when the processes end,
/// however they end. Requires Linux 5.3 or later. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

/// Returns a message about one of these ranks that has ended; empty if none has
/// ended. `create` must have created the backend.
std::string ended_rank(
    const c10d::Backend& backend,
    const std::vector<int64_t>& ranks);

} // namespace ddp::backends::shm
