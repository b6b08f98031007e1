#pragma once

#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace ddp {

/// How `spawn` ends its workers.
struct SpawnOptions {
  /// The time between SIGTERM to a worker and SIGKILL. Default: 5 s.
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
/// folder in which the program was started, up to this call of `spawn`. There
/// `worker` runs and the process ends, with exit code 0. Code after the call
/// runs in the first process only. Code before it runs in all processes and
/// must lead to the same call. If a program has several calls, a worker process
/// returns immediately from those before its own. Its environment is the
/// program's plus ddprun's variables, so that `init_process_group` needs no
/// options: ranks from 0 on, and OMP_NUM_THREADS, if it is unset and `count`
/// above 1, as an even share of the CPUs. Its standard input is /dev/null, and
/// it inherits only the descriptors of standard output and standard error.
///
/// `argc` and `argv` are those of `main`. Workers also get arguments that were
/// removed from them since (by MPI_Init or a library for flags).
///
/// Throws `c10::Error` if a worker cannot be started, throws, ends by a signal
/// or with an exit code other than 0, or does not reach the call. The error has
/// its rank, process and message, those of the first failure if one leads to
/// others. The other workers have then ended. Throws `c10::ValueError` if
/// `count` is not above 0, and `c10::Error` within a worker, and if a launcher
/// (ddprun, torchrun, mpirun, srun) has already started several processes.
///
/// No process remains, even if the first one is killed, except those that
/// workers started. SIGTERM, SIGINT, SIGHUP and SIGQUIT, if the program has no
/// handler for them, are forwarded to the workers, and end this process too
/// once they have ended; a second one kills them. SIGUSR1 and SIGUSR2 are only
/// forwarded. Call it on one thread at a time.
DDP_API void spawn(
    int argc,
    char** argv,
    int64_t count,
    const std::function<void()>& worker,
    const SpawnOptions& options = {});

} // namespace ddp
