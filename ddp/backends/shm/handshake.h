#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {

/// Returns a descriptor that becomes readable when this process ends. Throws
/// `c10::Error` with the reason if there is none.
FileDescriptor open_own_process();

/// Returns the memory and the process of each rank, by rank. The ranks connect
/// to a UNIX socket of rank 0, in the abstract namespace, which leaves no file
/// behind. Rank 0 accepts only processes of the same user that send a password
/// from the store. Throws `c10::DistError` if another rank may be the reason,
/// and after `options.timeout`; otherwise `c10::Error`. Collective.
std::vector<Peer> exchange_memory(
    const Memory& own,
    const BackendOptions& options);

} // namespace ddp::backends::shm
