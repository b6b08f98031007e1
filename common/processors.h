#pragma once

#include <string>

namespace ddp {

/// How many CPUs this process may use, at least 1: those that sched_getaffinity
/// reports, limited by the quota of its control groups. System files are read
/// under `root`.
int available_cpus(const std::string& root = "/");

/// How many GPUs a process started here would see: the entries nvidia0,
/// nvidia1, ... of `device_folder`, as CUDA_VISIBLE_DEVICES selects them
/// (`selection`, null if it is unset; the list ends at the first index that is
/// not there, as in CUDA). Creates no CUDA context.
int visible_gpus(
    const char* selection,
    const std::string& device_folder = "/dev");

} // namespace ddp
