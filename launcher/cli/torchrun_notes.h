#pragma once

#include <launcher/cli/combinations.h>

namespace ddp {

/// Checks options that are there for torchrun's command lines, and notes those
/// after which one would expect what does not happen.
void note_torchrun_options(const GivenOptions& given, LaunchOptions* options);

} // namespace ddp
