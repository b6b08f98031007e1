#pragma once

#include <string>
#include <vector>

#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>

namespace ddp {

/// What one rank would be.
struct PlannedRank {
  int rank = 0;
  std::vector<std::string> arguments; // argv
  Variables environment; // that ddprun sets
  RankPlace place;
};

/// What --dry-run prints: for each rank a line that a shell can run, with the
/// variables that ddprun sets, and where it would be bound to. Values of
/// variables and options that look secret are shown as ***.
std::string describe_plan(
    const std::vector<PlannedRank>& ranks,
    int world_size);

/// The text as one word of a shell.
std::string shell_word(const std::string& text);

} // namespace ddp
