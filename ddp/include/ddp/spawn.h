#pragma once

#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace ddp {

/// How `spawn` ends its workers.
struct SpawnOptions {
  /// From asking a worker to stop (SIGTERM) to killing it. Default: 5 s.
  TORCH_ARG(std::chrono::milliseconds, grace) = std::chrono::seconds(5);
};

/// Starts this program `count` more times on this machine, calls `worker` in
/// each of these processes, and waits for them.
///
///     int main(int argc, char** argv) {
///       ddp::spawn(argc, argv, 4, [] {
///         auto group = ddp::init_process_group(); // of four ranks
///         ...
///       });
///     }
///
/// In each worker process `main` runs again, with the same arguments and in the
/// folder that the program was started in, up to this call of `spawn`: there
/// `worker` runs and the process ends, with exit code 0. What follows the call
/// runs in the first process only; what precedes it runs in all of them and
/// must lead to the same call. Where a program has several calls, a worker
/// process returns at once from those before its own. Its environment is the
/// program's own with what ddprun would set, so that `init_process_group` needs
/// no options: ranks from 0 on, and OMP_NUM_THREADS, where it is unset and
/// `count` above 1, an even share of the CPUs. Its standard input is /dev/null,
/// and it inherits no descriptors but standard output and standard error.
///
/// `argc` and `argv` are those of `main`. Arguments that something has taken
/// out of them since (MPI_Init, a library for flags) are there again.
///
/// Throws `c10::Error` where a worker throws, ends by a signal or by an exit
/// code other than 0, or does not come to the call: with its rank, process and
/// message, those of the first failure where one leads to others; and where one
/// cannot be started. The rest has been ended then. Throws `c10::ValueError`
/// where `count` is not above 0, and `c10::Error` within a worker, and where a
/// launcher (ddprun, torchrun, mpirun, srun) has started several processes
/// already.
///
/// No process stays behind, also where the first is killed, except what workers
/// have started themselves. SIGTERM, SIGINT, SIGHUP and SIGQUIT, where the
/// program has no handler for them, are passed on to the workers, and end this
/// process too once they have ended; a second one kills them. SIGUSR1 and
/// SIGUSR2 are passed on only. Call it on one thread at a time.
DDP_API void spawn(
    int argc,
    char** argv,
    int64_t count,
    const std::function<void()>& worker,
    const SpawnOptions& options = {});

} // namespace ddp
