#pragma once

#include <string>

namespace bench {

/// MiB, from a line of a file of /proc/self: "VmHWM:" of "status" (the most
/// memory that the process had), "VmRSS:" (what it has), or "Pss:" of
/// "smaps_rollup" (the same, but shared pages divided by who share them).
double memory_mib(const std::string& file, const std::string& line);

/// The most memory counts from now on.
void reset_peak_memory();

} // namespace bench
