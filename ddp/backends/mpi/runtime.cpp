#include <ddp/backends/mpi/runtime.h>

#include <ddp/backends/mpi/engine.h>
#include <ddp/internal/check.h>

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace ddp::backends::mpi {
namespace {

/// MPI's text for an error code.
std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return c10::str("MPI error ", code);
  }
  return std::string(text.data(), static_cast<size_t>(length));
}

/// Runs at the end of a process in which this library initialized MPI.
void finalize(int status, void* process) {
  // MPI_Finalize would wait for running operations, maybe forever, and for the
  // other ranks, which may wait for a failed rank. Without MPI_Finalize, mpirun
  // ends the job. A forked child inherits this call.
  if (reinterpret_cast<intptr_t>(process) == getpid() && status == 0 &&
      Engine::get().stop() && mpi_running()) {
    MPI_Finalize();
  }
}

Threading start() {
  // By default, Open MPI reduces in place along a binomial tree. Between hosts,
  // Rabenseifner's algorithm (3) takes a third of the time.
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
      "MPI_Init_thread");
  on_exit(finalize, reinterpret_cast<void*>(intptr_t{getpid()}));
  switch (provided) {
    case MPI_THREAD_MULTIPLE:
      return Threading::kFree;
    case MPI_THREAD_SERIALIZED:
      return Threading::kOneAtATime;
    default:
      return Threading::kCaller;
  }
}

bool is_main_thread() {
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  return is_main != 0;
}

} // namespace

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    DDP_THROW(DistBackendError, "{} failed: {}", call, mpi_error_text(code));
  }
}

bool mpi_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

Threading initialize_mpi() {
  static std::mutex mutex;
  static bool ours = false;
  static Threading threading = Threading::kCaller;
  const std::lock_guard<std::mutex> lock(mutex);
  int finalized = 0;
  MPI_Finalized(&finalized);
  DDP_CHECK_WITH(
      DistBackendError,
      !finalized,
      "MPI was finalized in this process and cannot start again");
  if (!ours && !mpi_running()) {
    ours = true;
    threading = start();
  } else if (!ours) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    threading =
        level == MPI_THREAD_MULTIPLE ? Threading::kFree : Threading::kCaller;
  }
  return threading;
}

void check_thread() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  DDP_CHECK_WITH(
      DistBackendError,
      level >= MPI_THREAD_SERIALIZED || is_main_thread(),
      "the program initialized MPI for calls from its main thread only, but "
      "this call is on another thread, such as a GPU's backward thread: use "
      "MPI_Init_thread with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
}

Comm::Comm(MPI_Comm owned) : comm_(owned) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Comm::~Comm() {
  if (comm_ == MPI_COMM_NULL || !mpi_running()) {
    return;
  }
  auto& engine = Engine::get();
  // Otherwise not freed: the program may be calling MPI on another thread.
  if (engine.threading() != Threading::kCaller || is_main_thread()) {
    const auto guard = engine.exclusive();
    MPI_Comm_free(&comm_);
  }
}

int Comm::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int Comm::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

} // namespace ddp::backends::mpi
