#pragma once

#include <launcher/command_line/combinations.h>

namespace ddp {

/// Settles --nnodes and --node-rank. Throws LaunchError (exit code 2) for more
/// than one node, saying what starts those.
void settle_nodes(const GivenOptions& given, LaunchOptions* options);

} // namespace ddp
