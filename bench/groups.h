#pragma once

#include <ddp/process_group.h>

#include <optional>
#include <string>

namespace bench {

/// Keeps this process, and those that it starts from here on, on one of the
/// CPUs that it may use: another one for each rank of the host, as long as
/// there are some. Call it before threads are there.
void pin_to_one_cpu();

/// The group of all ranks over `backend`, or nothing, said by rank 0, where ddp
/// does not have it. Can be called several times. Collective.
std::optional<ddp::ProcessGroup> find_group(const std::string& backend);

} // namespace bench
