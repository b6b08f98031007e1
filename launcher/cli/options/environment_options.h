#pragma once

#include <optional>
#include <string>

#include <common/scheduler/environment_lookup.h>
#include <launcher/cli/options/option.h>

namespace ddp {

/// "PET_NPROC_PER_NODE" for "nproc-per-node", as in torchrun.
std::string variable_name(const std::string& option_name);

/// What the environment gives for the option, by either of its names: none
/// where its variable is unset, where it is 0 for a flag, and where there is no
/// variable. Throws LaunchError for a flag that is neither 1 nor 0.
std::optional<OptionValue> value_from_environment(
    const CommandOption& option,
    const EnvironmentLookup& lookup);

} // namespace ddp
