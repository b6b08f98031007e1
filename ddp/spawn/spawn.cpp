#include <ddp/spawn.h>

#include <common/file_descriptor.h>
#include <common/processes/worker.h>
#include <common/processors.h>
#include <common/random_name.h>
#include <common/scheduler/rank_environment.h>
#include <common/seconds.h>
#include <ddp/environment/launch_source.h>
#include <ddp/failure/crash_handler.h>
#include <ddp/failure/error_file.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/uncaught.h>
#include <ddp/rendezvous/host.h>
#include <ddp/spawn/program_copy.h>
#include <ddp/spawn/spawned_workers.h>
#include <ddp/support/no_dns_guard.h>

#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <system_error>

namespace ddp {
namespace {

/// In a worker process, "<call> <parent> <descriptor>": the number of the call
/// for which it was started, the process that started it, and its report file.
constexpr const char* kVariable = "DDP_SPAWN";

// Per process: the number of calls so far, and whether one is running.
std::atomic<int64_t> calls{0};
std::atomic<bool> under_way{false};

struct Assignment {
  int64_t call = 0;
  int descriptor = -1;
};

/// The call for which this process was started. Throws if a worker started this
/// process before its own call: workers would start workers without end.
std::optional<Assignment> assignment() {
  const char* text = std::getenv(kVariable);
  Assignment result;
  int64_t parent = 0;
  if (!text ||
      std::sscanf(
          text,
          "%" SCNd64 " %" SCNd64 " %d",
          &result.call,
          &parent,
          &result.descriptor) != 3) {
    return std::nullopt;
  }
  DDP_CHECK(
      parent == getppid(),
      "spawn was called in a process that a worker forked or started before "
      "the worker's own call. Workers cannot start workers: call spawn in the "
      "process that runs main() or, if this is another program, unset {}",
      kVariable);
  return result;
}

void flush_output() {
  std::cout.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

/// After this call, the parent process gets reports of this process's failures.
void report_to_parent(int descriptor) {
  unsetenv(kVariable); // not for programs that this one starts
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  DDP_CHECK(
      write(descriptor, "\n", 1) == 1,
      "spawn: cannot write to the report file of process {}, which started "
      "this process: {}",
      getppid(),
      std::strerror(errno));
  detail::use_error_file(descriptor);
  detail::report_crashes();
  detail::report_uncaught(nullptr);
}

[[noreturn]] void work(
    const Assignment& assigned,
    const std::function<void()>& worker) {
  report_to_parent(assigned.descriptor);
  try {
    worker();
  } catch (...) {
    detail::report_exception();
    flush_output();
    _exit(1); // no destructor may wait for other ranks
  }
  std::exit(0);
}

/// Throws if a launcher has started several processes: each would start
/// separate workers.
void check_launch() {
  const auto source = detail::find_launch_source(
      ProcessGroupOptions(), process_environment(), nullptr);
  DDP_CHECK(
      !source || source->world_size == 1,
      "spawn: according to {}={} and {}={}, this is already one of several "
      "processes, and each would start separate workers: start the program "
      "without {}, or call the worker function directly under a launcher",
      source->rank_name,
      source->rank,
      source->size_name,
      source->world_size,
      source->launcher == "RANK and WORLD_SIZE"
          ? "ddprun, torchrun or these variables"
          : source->launcher);
}

/// Serves the workers' store, at a socket that listened before they started.
c10::intrusive_ptr<c10d::TCPStore> serve_store(
    FileDescriptor listener,
    int64_t port) {
  const detail::NoDnsGuard no_dns_guard(detail::kLoopback);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener.release();
  return c10::make_intrusive<c10d::TCPStore>(detail::kLoopback, options);
}

JobEnvironment describe_job(int count) {
  JobEnvironment job;
  job.world_size = count;
  job.local_world_size = count;
  job.master_addr = detail::kLoopback;
  job.run_id = detail::random_name();
  job.omp_threads = omp_threads_per_rank(
      count, available_cpus(), std::getenv("OMP_NUM_THREADS"));
  return job;
}

void start(
    detail::SpawnedWorkers& workers,
    const std::vector<std::string>& arguments,
    int64_t call,
    int count,
    int64_t port) {
  auto job = describe_job(count);
  for (int rank = 0; rank < count; ++rank) {
    auto report = detail::make_report_file();
    RankEnvironment place;
    place.local_rank = rank;
    place.master_port = static_cast<int>(port);
    // Not by a stream, whose locale may group digits.
    const auto assigned = std::to_string(call) + " " +
        std::to_string(getpid()) + " " + std::to_string(report.get());
    job.extra = {{kVariable, assigned}};
    WorkerPlan plan;
    plan.program = detail::program_path();
    plan.arguments = arguments;
    plan.environment = worker_environment(rank_variables(job, place), environ);
    plan.folder = detail::start_folder();
    plan.kept_fds = {report.get()};
    plan.exec_error_fd = report.get();
    plan.apart = false;
    workers.add(fork_worker(std::move(plan)), std::move(report));
  }
}

/// Runs the workers. Returns the signal by which this process must end, or 0.
int run(
    const std::vector<std::string>& arguments,
    int64_t call,
    int count,
    const SpawnOptions& options) {
  auto listener = above_standard_streams(
      FileDescriptor(detail::listen_at(detail::kLoopback, 0)));
  const auto port = detail::port_of(listener.get());
  detail::SpawnedWorkers workers(count, backends::bounded(options.grace()));
  flush_output();
  start(workers, arguments, call, count, port);
  const auto store = serve_store(std::move(listener), port);
  const int signal = workers.wait();
  const auto failure = signal ? "" : workers.failure();
  DDP_CHECK(failure.empty(), "spawn: {}", failure);
  return signal;
}

} // namespace

void spawn(
    int argc,
    char** argv,
    int64_t count,
    const std::function<void()>& worker,
    const SpawnOptions& options) {
  DDP_CHECK_VALUE(
      count >= 1 && count <= std::numeric_limits<int16_t>::max(),
      "spawn: the number of processes must be from 1 to {}, but is {}",
      std::numeric_limits<int16_t>::max(),
      count);
  DDP_CHECK_VALUE(worker, "spawn: the worker function is empty");
  DDP_CHECK_VALUE(
      options.grace().count() >= 0,
      "spawn: the grace must not be below 0, but is {} ms",
      options.grace().count());
  DDP_CHECK(
      !under_way.exchange(true),
      "spawn was called while another call to spawn was running. If a worker "
      "function called it: workers cannot start workers, so pass a larger "
      "number of processes to the first call. If another thread called it: "
      "wait until the first call has returned");
  const auto ended = c10::make_scope_exit([] { under_way = false; });
  const auto call = ++calls;
  const auto assigned = assignment();
  if (assigned && call < assigned->call) {
    return;
  }
  if (assigned && call == assigned->call) {
    work(*assigned, worker);
  }
  check_launch();
  const auto arguments = detail::program_arguments(argc, argv);
  int signal = 0;
  try {
    signal = run(arguments, call, static_cast<int>(count), options);
  } catch (const std::system_error& error) {
    DDP_THROW(Error, "spawn: {}", error.what());
  }
  if (signal) {
    raise(signal);
    DDP_THROW(Error, "spawn: the workers were ended by signal {}", signal);
  }
}

} // namespace ddp
