#pragma once

#include <launcher/job.h>

namespace ddp {

/// Runs the job in an agent process, passes signals on to it, and ends with its
/// exit code. If the agent is killed, ends every descendant: 128 + its signal.
/// Takes the job's listener. Throws std::system_error where it cannot start.
int run_front(Job& job);

} // namespace ddp
