#pragma once

#include <launcher/cli/options/option.h>

namespace ddp {

/// Settles how many nodes the job has, which one this is and where they meet,
/// by the options and an outer launcher; options come first. Throws LaunchError
/// (exit code 2) where they exclude each other or do not tell.
void settle_nodes(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    LaunchOptions* options);

/// The secret of the nodes: that of --token, else of DDP_TOKEN.
void settle_secret(
    const GivenOptions& given,
    const EnvironmentLookup& lookup,
    NodeOptions* nodes);

} // namespace ddp
