#pragma once

#include <vector>

#include <sys/types.h>

namespace ddp {

/// Makes orphaned descendants, daemons included, children of this process.
void become_subreaper();

/// The children of the calling thread, zombies included.
std::vector<pid_t> child_processes();

/// Waits for SIGCHLD, which is blocked, but not for long: it coalesces, and may
/// have been taken already.
void await_child_signal(int milliseconds);

/// Ends every descendant of the calling process, which must be a subreaper and
/// call from its main thread with SIGCHLD blocked: kills and reaps its children
/// until none is left, since their own children become ours as they die.
/// Children in `spared` are left alone. Gives up after ten seconds on processes
/// that the kernel does not end (blocked in a driver). Returns how many were
/// reaped.
int end_descendants(const std::vector<pid_t>& spared = {});

} // namespace ddp
