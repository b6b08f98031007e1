#pragma once

#include <string>

#include <launcher/cli/options/option.h>

namespace ddp {

/// The job's secret: the first line of --token's file, without spaces around
/// it. Throws LaunchError (exit code 2) where that is empty, or where others
/// than its owner may read the file.
std::string token_of(const OptionValue& value);

} // namespace ddp
