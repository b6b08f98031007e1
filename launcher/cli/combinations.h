#pragma once

#include <map>
#include <string>

#include <common/scheduler/environment_lookup.h>
#include <launcher/cli/options/option.h>

namespace ddp {

/// The options that were given, by their names, with their last values.
using GivenOptions = std::map<std::string, OptionValue>;

/// Settles what several options decide together: ranks, nodes, what the program
/// is, the prefix of lines. Throws LaunchError (exit code 2) where options
/// exclude each other, and notes those that have no effect though they seem to.
void combine_options(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options);

} // namespace ddp
