#pragma once

#include <string>
#include <vector>

#include <common/scheduler/rank_environment.h>
#include <launcher/affinity/cpu_binding.h>

namespace ddp {

/// What --dry-run prints of a rank: a line that a shell can run, with the
/// variables that ddprun sets, and beside its name where it would be bound to.
/// Values of variables and options that look secret are shown as ***.
std::string describe_rank(
    const std::string& name,
    const std::vector<std::string>& arguments,
    const Variables& environment,
    const RankPlace* place);

/// The text as one word of a shell.
std::string shell_word(const std::string& text);

} // namespace ddp
