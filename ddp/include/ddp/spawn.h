#pragma once

#include <ddp/internal/export.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace ddp {

/// Options of `spawn`.
struct SpawnOptions {
  /// The time between SIGTERM and SIGKILL to a worker. Default: 5 s.
  TORCH_ARG(std::chrono::milliseconds, grace) = std::chrono::seconds(5);
};

/// Starts this program `count` more times on this machine, calls `worker` in
/// each of these processes, and waits for the processes to end.
///
///     int main(int argc, char** argv) {
///       ddp::spawn(argc, argv, 4, [] {
///         auto group = ddp::init_process_group(); // of four ranks
///         ...
///       });
///     }
///
/// In each worker process, `main` runs again up to this call to `spawn`, with
/// the same arguments and in the folder in which the program was started. The
/// call runs `worker` and ends the process with exit code 0. Code after the
/// call runs in the first process only. Code before the call runs in all
/// processes and must reach the same call. If a program has several calls, a
/// worker process returns immediately from the calls before its own, also from
/// calls that failed, so a failed call cannot be tried again. A worker's
/// environment is the program's, without a scheduler's variables of its task,
/// plus ddprun's variables, so `init_process_group` needs no options. Ranks are
/// numbered from 0. If OMP_NUM_THREADS is unset and `count` is above 1, a
/// worker's value is an even share of the CPUs. A worker's standard input is
/// /dev/null; the worker inherits only the descriptors of standard output and
/// standard error.
///
/// `argc` and `argv` are the arguments of `main`. Workers also get arguments
/// that MPI_Init or a flags library has removed from `argv`.
///
/// Throws `c10::Error` if a worker cannot be started, throws, is killed by a
/// signal, exits with a code other than 0, or does not reach the call. The
/// error contains the rank, process and message of the first failure. By then,
/// all other workers have ended. An assertion of a test framework that does not
/// throw (EXPECT and ASSERT of GoogleTest, CHECK of Catch2) does not fail a
/// worker: throw an exception instead. Throws `c10::ValueError` if `count` is
/// not positive or `grace` is negative. Throws `c10::Error` if called within a
/// worker or in a process that a worker started before its call (as frameworks
/// do that fork each test), or if a launcher (ddprun, torchrun, mpirun, srun)
/// has already started several processes.
///
/// No worker remains, even if the first process is killed; processes that
/// workers started may remain. If the program has no handler for SIGTERM,
/// SIGINT, SIGHUP or SIGQUIT, the signal is forwarded to the workers, and ends
/// this process once they have ended. A second signal kills the workers, unless
/// it is the same and a process sent it within 2 s. SIGUSR1 and SIGUSR2 are
/// only forwarded. Call `spawn` on one thread at a time.
DDP_API void spawn(
    int argc,
    char** argv,
    int64_t count,
    const std::function<void()>& worker,
    const SpawnOptions& options = {});

} // namespace ddp
