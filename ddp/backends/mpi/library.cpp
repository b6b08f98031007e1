#include <ddp/backends/mpi.h>
#include <ddp/backends/mpi/backend.h>
#include <ddp/backends/mpi/backoff.h>
#include <ddp/backends/mpi/engine.h>
#include <ddp/backends/mpi/operation.h>
#include <ddp/backends/mpi/runtime.h>
#include <ddp/internal/check.h>

#include <cstring>
#include <limits>

namespace ddp::backends::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Returns when all ranks have called a barrier.
void pass_barrier(MPI_Comm comm, milliseconds timeout, const char* call) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  Backoff pause(microseconds(0), microseconds(1000));
  const auto start = Backoff::Clock::now();
  int all_came = 0;
  while (all_came == 0) {
    check_mpi(MPI_Test(&request, &all_came, MPI_STATUS_IGNORE), "MPI_Test");
    const auto now = Backoff::Clock::now();
    if (all_came == 0 && now - start > timeout) {
      int rank = 0;
      int size = 0;
      MPI_Comm_rank(comm, &rank);
      MPI_Comm_size(comm, &size);
      DDP_THROW(
          DistBackendError,
          "{} timed out after {}ms on rank {}: not all {} ranks of the "
          "communicator have called it",
          call,
          timeout.count(),
          rank,
          size);
    }
    pause(now);
  }
}

/// Waits for all ranks with a timeout, which MPI's calls do not have.
void barrier(MPI_Comm comm, milliseconds timeout, const char* call) {
  // A late rank passes the first barrier even if the other ranks have timed
  // out.
  pass_barrier(comm, timeout, call);
  pass_barrier(comm, timeout, call);
}

/// A `Communicator` that owns `comm`. Its collective functions throw
/// `c10::DistBackendError` if not all ranks call them in time.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::unique_ptr<Comm> comm, milliseconds timeout)
      : channel_(std::make_shared<Channel>(std::move(comm))),
        timeout_(timeout) {}

  int rank() const override {
    return channel_->rank;
  }

  int size() const override {
    return channel_->size;
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    DDP_CHECK_VALUE(
        color >= -1,
        "split requires a color of 0 or more, or -1; got {}",
        color);
    MPI_Comm part = MPI_COMM_NULL;
    {
      const auto guard = Engine::get().exclusive();
      barrier(channel_->comm->get(), timeout_, "MPI_Comm_split");
      check_mpi(
          MPI_Comm_split(
              channel_->comm->get(),
              color == -1 ? MPI_UNDEFINED : color,
              key,
              &part),
          "MPI_Comm_split");
    }
    return part == MPI_COMM_NULL ? nullptr
                                 : std::make_shared<MpiCommunicator>(
                                       std::make_unique<Comm>(part), timeout_);
  }

  std::string broadcast(const std::string& text) override {
    const auto guard = Engine::get().exclusive();
    std::string result = text;
    auto length = static_cast<int64_t>(text.size());
    const auto comm = channel_->comm->get();
    barrier(comm, timeout_, "MPI_Bcast");
    check_mpi(MPI_Bcast(&length, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
    DDP_CHECK_VALUE(
        length <= std::numeric_limits<int>::max(),
        "broadcast of {} bytes over mpi; the maximum is 2 GiB",
        length);
    result.resize(static_cast<size_t>(length));
    check_mpi(
        MPI_Bcast(result.data(), static_cast<int>(length), MPI_CHAR, 0, comm),
        "MPI_Bcast");
    return result;
  }

  c10::intrusive_ptr<c10d::Backend> create(
      const BackendOptions& options,
      int64_t largest) override {
    Task task;
    task.name = "duplication of a communicator";
    task.timeout = options.timeout;
    auto handle = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    task.steps.push_back([=, channel = channel_](Requests& requests) {
      check_mpi(
          MPI_Comm_idup(channel->comm->get(), handle.get(), requests.next()),
          "MPI_Comm_idup");
    });
    const auto operation =
        c10::make_intrusive<Operation>(channel_, std::move(task));
    Engine::get().submit(operation);
    operation->wait(kNoTimeout);
    return c10::make_intrusive<Backend>(
        std::make_shared<Channel>(std::make_unique<Comm>(*handle)),
        options.timeout,
        largest);
  }

 private:
  const std::shared_ptr<Channel> channel_;
  const milliseconds timeout_;
};

/// A duplicate of `comm`. Collective; throws like `MpiCommunicator`.
std::unique_ptr<Comm> duplicate(MPI_Comm comm, milliseconds timeout) {
  const auto guard = Engine::get().exclusive();
  barrier(comm, timeout, "MPI_Comm_dup");
  MPI_Comm result = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &result), "MPI_Comm_dup");
  return std::make_unique<Comm>(result);
}

std::shared_ptr<Communicator> world(std::chrono::milliseconds timeout) {
  initialize_mpi();
  Engine::get();
  return std::make_shared<MpiCommunicator>(
      duplicate(MPI_COMM_WORLD, timeout), timeout);
}

std::shared_ptr<Communicator> adopt(
    const void* handle,
    size_t size,
    std::chrono::milliseconds timeout) {
  DDP_CHECK_VALUE(
      handle && size == sizeof(MPI_Comm),
      "MPI_Comm has {} bytes here, but {} in the MPI that ddp was built with. "
      "Build ddp with the program's MPI",
      size,
      sizeof(MPI_Comm));
  DDP_CHECK_VALUE(
      mpi_running(),
      "an MPI_Comm was passed, but MPI is not initialized or was finalized");
  MPI_Comm comm = MPI_COMM_NULL;
  std::memcpy(&comm, handle, size);
  DDP_CHECK_VALUE(comm != MPI_COMM_NULL, "MPI_COMM_NULL was passed");
  int between_groups = 0;
  MPI_Comm_test_inter(comm, &between_groups);
  DDP_CHECK_VALUE(
      !between_groups,
      "an intercommunicator was passed; ddp needs an intracommunicator");
  return std::make_shared<MpiCommunicator>(duplicate(comm, timeout), timeout);
}

bool needs_calls() {
  return Engine::get().threading() == Threading::kCaller;
}

void defer(const std::function<void()>& start) {
  Engine::get().defer(start);
}

void drive(
    std::chrono::steady_clock::time_point until,
    const std::function<bool()>& done) {
  Engine::get().drive(until, done);
}

} // namespace
} // namespace ddp::backends::mpi

extern "C" __attribute__((visibility("default")))
const ddp::backends::mpi::Library*
ddp_mpi_library() {
  using namespace ddp::backends::mpi;
  static const Library library{
      DDP_VERSION, mpi_running, world, adopt, needs_calls, defer, drive};
  return &library;
}
