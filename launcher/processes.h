#pragma once

#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include <common/file_descriptor.h>

namespace ddp {

/// The signals that ddprun receives through a signalfd: signals that end a job
/// (TERM, INT, HUP, QUIT), forwarded signals (USR1, USR2, TSTP, CONT), and
/// CHLD.
sigset_t handled_signals();

/// Blocks the handled signals, for signalfd, and ignores SIGPIPE and SIGXFSZ:
/// if a reader closes its end, or a file reaches its limit, output is lost, but
/// the job continues. Call before any fork.
void take_signals();

/// Opens a non-blocking signalfd for the handled signals.
FileDescriptor open_signal_descriptor();

/// Reads the next pending signal from a signalfd. Returns the signal's number,
/// or 0 for none, and sets `sender` to the process that sent it.
int next_signal(const FileDescriptor& signals, pid_t* sender = nullptr);

/// Whether this signal ends the job.
bool ends_job(int signal);

/// The requests to end the job. A supervisor may send its signal to several
/// processes, which forward it, and may send it twice: the first signal counts
/// once, whoever else sends it, and for half a second also if it is repeated.
class EndRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Counts a signal that ends the job, from `sender`, a process or another
  /// source (0 if unknown); returns false if it is the same request as the
  /// first signal.
  bool take(int signal, Time now, pid_t sender = 0);
  int count() const {
    return count_;
  }
  /// The first signal; 0 for none.
  int signal() const {
    return signal_;
  }

 private:
  int count_ = 0;
  int signal_ = 0;
  Time first_;
  std::set<pid_t> senders_; // of the first signal
};

/// Stops this process, which blocks SIGTSTP, as SIGTSTP stops others, and
/// returns when the process continues. Returns at once if no shell could
/// continue it: in process 1, and in an orphaned process group.
void stop_for_shell();

/// Raises this process's limit of open files, usually 1024, as far as it may:
/// each rank or host takes several. Returns the previous limit, for processes
/// that it starts. Throws std::system_error.
rlimit raise_descriptor_limit();

/// Makes orphaned descendants, daemons included, children of this process.
void become_subreaper();

/// The children of the calling thread, zombies included.
std::vector<pid_t> child_processes();

/// Waits for SIGCHLD, which is blocked, with a time limit, since several
/// signals may arrive as one, or may already have been read.
void await_child_signal(int milliseconds);

/// Ends every descendant of the calling process. The process must be a
/// subreaper, and must call this function from its main thread with SIGCHLD
/// blocked. Kills and reaps the children until none is left; the children of a
/// killed child become children of this process. Skips children in `spared`.
/// Gives up after ten seconds on processes that the kernel does not end
/// (blocked in a driver).
void end_descendants(const std::vector<pid_t>& spared = {});

/// The path of a helper program of ddprun: in the folder of ddprun, or in
/// DDP_HELPERS (relative) of an installation. Throws LaunchError if it is in
/// neither.
std::string find_helper(const std::string& name);

/// How a helper program ended; names a remedy if it lacks a shared library.
std::string describe_helper_end(int wait_status);

/// For WorkerPlan::prepare of a helper or a remote shell: a supervisor may
/// signal all processes of a job, and the ranks need these until they have
/// ended. A file of messages that reaches its limit does not end these either.
void ignore_job_signals();

/// The environment for helpers: this process's environment without the nodes'
/// secret, since helpers are reachable over the network.
std::vector<std::string> helper_environment();

/// Starts the store on a listening socket, which the store takes over; ranks
/// may connect before the store is ready. The store runs until it is killed or
/// the calling process ends. The store writes its messages to standard error.
/// Throws std::system_error.
pid_t start_store(const std::string& program, FileDescriptor listener);

} // namespace ddp
