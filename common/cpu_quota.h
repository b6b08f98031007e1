#pragma once

#include <string>

namespace ddp {

/// How many CPUs the control groups of this process (cgroup v2's cpu.max, v1's
/// cpu.cfs_quota_us) let it keep busy; infinity if they set no limit. System
/// files are read under `root`.
double cpu_quota(const std::string& root = "/");

} // namespace ddp
