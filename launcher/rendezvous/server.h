#pragma once

#include <launcher/rendezvous/node_options.h>

namespace ddp {

/// `ddprun --rdzv-server`: listens where `nodes` says, says so, and becomes the
/// program that serves the log there. Throws LaunchError where that cannot be.
[[noreturn]] void serve_log(const NodeOptions& nodes);

} // namespace ddp
