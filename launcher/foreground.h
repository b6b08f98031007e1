#pragma once

#include <sys/types.h>

namespace ddp {

/// Whether a process is in the foreground of its terminal, as a shell's job is
/// that was not started with `&`; false where it has none.
bool is_in_foreground(pid_t pid);

} // namespace ddp
