#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

/// A process and what /proc tells of it.
struct ProcessCost {
  std::string name;
  long peak_kib = 0; // VmHWM
  long share_kib = 0; // PSS: shared pages count in part; 0 where not told
  long wake_ups = 0; // voluntary context switches of all its threads
};

/// `root` and its descendants, but for those in `excluded` and theirs.
std::vector<ProcessCost> process_costs(
    pid_t root,
    const std::vector<pid_t>& excluded);
