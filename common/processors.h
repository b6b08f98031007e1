#pragma once

#include <string>

namespace ddp {

/// The number of CPUs that this process may use, at least 1: those that
/// sched_getaffinity reports, limited by the quota of its control groups.
/// Reads system files under `root`.
int available_cpus(const std::string& root = "/");

/// Whether the quota, which OpenMP does not read, makes `available_cpus`
/// smaller than the number that sched_getaffinity reports.
bool quota_limits_cpus(const std::string& root = "/");

/// The number of GPUs that a process started on this host would see: the
/// entries nvidia0, nvidia1, ... of `device_folder` that this process may open
/// and that CUDA_VISIBLE_DEVICES selects. `selection` is this variable's value,
/// null if unset; as in CUDA, the list ends at the first missing index. Creates
/// no CUDA context.
int visible_gpus(
    const char* selection,
    const std::string& device_folder = "/dev");

} // namespace ddp
