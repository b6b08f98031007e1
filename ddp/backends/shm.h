#pragma once

#include <ddp/backends/common/backend.h>

#include <cstdint>
#include <vector>

namespace ddp::backends::shm {

/// The reason for which this process cannot share memory with the other
/// processes of its host, `ranks` in total; empty if it can.
std::string unavailable(int64_t ranks);

/// This library's backend for CPU tensors of ranks that share a host. All ranks
/// map shared memory, which the system frees when the processes end in any way.
/// Needs Linux 5.3. Collective.
c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options);

/// A text about one of these ranks that has ended; empty if none has ended. The
/// backend must be a result of `create`.
std::string ended_rank(
    const c10d::Backend& backend,
    const std::vector<int64_t>& ranks);

} // namespace ddp::backends::shm
