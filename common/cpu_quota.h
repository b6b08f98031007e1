#pragma once

#include <string>

namespace ddp {

/// The number of CPUs that the control groups of this process (cgroup v2's
/// cpu.max, v1's cpu.cfs_quota_us) allow it to use; infinity without a limit.
/// Reads system files under `root`.
double cpu_quota(const std::string& root = "/");

} // namespace ddp
