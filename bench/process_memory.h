#pragma once

#include <fstream>
#include <string>

namespace bench {

/// The MiB in a line of a file of /proc/self: "VmHWM:" of "status" (the most
/// memory that the process had), "VmRSS:" (its present memory), or "Pss:" of
/// "smaps_rollup" (the same, with shared pages divided among their processes).
inline double memory_mib(const std::string& file, const std::string& line) {
  std::ifstream stream("/proc/self/" + file);
  double kib = 0;
  for (std::string word; stream >> word;) {
    if (word == line) {
      stream >> kib;
      break;
    }
  }
  return kib / 1024;
}

} // namespace bench
