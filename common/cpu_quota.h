#pragma once

#include <string>

namespace ddp {

/// How many CPUs the control groups of this process (cgroup v2's cpu.max, v1's
/// cpu.cfs_quota_us) let it keep busy; infinity where they set no bound. Files
/// of the system are looked up under `root`.
double cpu_quota(const std::string& root = "/");

} // namespace ddp
