#pragma once

#include <csignal>

#include <common/file_descriptor.h>

namespace ddp {

/// The signals that ddprun takes through a signalfd: those that end a job
/// (TERM, INT, HUP, QUIT), those it passes on (USR1, USR2, TSTP, CONT), and
/// CHLD.
sigset_t handled_signals();

/// Blocks the handled signals, for signalfd, and ignores SIGPIPE, so that a
/// reader that goes away costs output and not the job. Call before any fork.
void take_signals();

/// Opens a non-blocking signalfd for the handled signals.
FileDescriptor open_signal_descriptor();

/// Takes the next pending signal from a signalfd: its number, or 0 for none.
int next_signal(const FileDescriptor& signals);

/// Whether this signal asks ddprun to end the job.
bool ends_job(int signal);

} // namespace ddp
