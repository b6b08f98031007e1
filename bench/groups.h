#pragma once

#include <ddp/process_group.h>

#include <optional>
#include <string>

namespace bench {

/// Binds this process, and its later children, to one of the CPUs that it may
/// use. Ranks of a host get different CPUs if the host has enough. Call this
/// function before threads start.
void pin_to_one_cpu();

/// Returns the group of all ranks over `backend`. If `ddp` lacks this backend,
/// the first rank of each host prints the reason, and the result is empty. Can
/// be called several times. Collective.
std::optional<ddp::ProcessGroup> find_group(const std::string& backend);

} // namespace bench
