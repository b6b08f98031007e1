#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {

/// Returns the memory and the process of each rank, by rank. The ranks connect
/// to a UNIX socket of rank 0, in the abstract namespace, which leaves no file
/// behind. Rank 0 accepts only processes of the same user that send a password
/// from the store. Throws `c10::Error` on a failure and after
/// `options.timeout`. Collective.
std::vector<Peer> exchange_memory(
    const Memory& own,
    const BackendOptions& options);

} // namespace ddp::backends::shm
