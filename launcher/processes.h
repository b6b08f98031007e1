#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <sys/types.h>

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
/// that the kernel does not end (blocked in a driver).
void end_descendants(const std::vector<pid_t>& spared = {});

/// A program of ddprun's own: beside it, or in ../libexec/ddp where it is
/// installed. Throws LaunchError where it is in neither.
std::string find_helper(const std::string& name);

/// What helpers get of this process's environment: not the nodes' secret, as
/// they face the network.
std::vector<std::string> helper_environment();

/// Starts the store on a listening socket, which it takes over; ranks may
/// connect before it is ready. It dies with the calling process, or when it is
/// killed. What it has to say goes to standard error. Throws std::system_error.
pid_t start_store(const std::string& program, FileDescriptor listener);

} // namespace ddp
