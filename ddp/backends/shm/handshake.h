#pragma once

#include <ddp/backends/common/backend.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {

/// Gives each rank all ranks' memory and processes, by rank. They meet at a
/// UNIX socket of rank 0, in the abstract namespace, so that nothing is left in
/// a file system. Only processes of the same user that know a number from the
/// store are let in. Throws `c10::Error`, also after `options.timeout`.
/// Collective.
std::vector<Peer> exchange_memory(
    const Memory& own,
    const BackendOptions& options);

} // namespace ddp::backends::shm
