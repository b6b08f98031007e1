#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/mpi/runtime.h>
#include <ddp/backends/mpi/staging/staging.h>

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>

namespace ddp::backends::mpi {

/// Message tags: this library uses the last of the 32768 tags that every MPI
/// supports.
constexpr int kExchangeTag = 32767;
constexpr int kFirstReservedTag = 32766;

/// The memory of one message.
struct Bytes {
  void* data = nullptr;
  int64_t size = 0;
};

/// The memory of a tensor; empty for an undefined tensor.
Bytes bytes_of(const at::Tensor& tensor);

/// The MPI requests of one operation, and their types.
class Requests {
 public:
  /// `largest` is the maximum number of elements for one MPI call.
  explicit Requests(int64_t largest) : largest_(largest) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  /// Call this on a thread that may call MPI.
  ~Requests();

  /// The maximum number of elements, or bytes, for one MPI call.
  int64_t largest() const {
    return largest_;
  }

  /// The memory for the request of the next MPI call.
  MPI_Request* next();

  /// The size of a message for MPI: a number of elements of a type.
  struct Extent {
    int count;
    MPI_Datatype type;
  };
  Extent extent(int64_t bytes);

  void send(const Bytes& bytes, int peer, int tag, const Comm& comm);
  /// Receives a message of exactly this size; another size is an error.
  void receive(const Bytes& bytes, int peer, int tag, const Comm& comm);

  /// Whether all requests are complete. Throws `c10::DistBackendError` if a
  /// request failed.
  bool test();

  /// The sender of the last received message.
  int source() const {
    return source_;
  }

 private:
  void check_received(const MPI_Status& status, int64_t expected);

  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    /// The expected number of bytes; -1 if the request does not receive a
    /// message.
    int64_t expected = -1;
  };

  int64_t largest_;
  c10::SmallVector<Pending, 1> pending_;
  /// The number of requests that are known to be complete.
  size_t tested_ = 0;
  std::vector<MPI_Datatype> types_;
  int source_ = -1;
};

/// The state that the operations on one communicator share and keep alive.
struct Channel {
  explicit Channel(std::unique_ptr<Comm> its_comm);

  const std::unique_ptr<Comm> comm;
  const int rank;
  const int size;
  /// Whether an operation has steps left that later operations must not
  /// overtake.
  std::atomic<bool> occupied{false};
  /// The number of launched operations.
  std::atomic<uint64_t> launched{0};
  detail::FirstError first_error;
};

/// The steps of an operation.
struct Task : OperationInfo {
  Staging staging;
  int64_t largest = 0;
  /// Functions that call MPI. The functions in `steps` and `finish` keep the
  /// tensors alive.
  std::vector<std::function<void(Requests&)>> steps;
  /// A step that runs after MPI has completed `steps`; later operations wait
  /// for this step. `finish` must hold the step's tensors.
  std::function<void(Requests&)> second_step;
  /// Functions that run after MPI has completed all steps.
  std::vector<std::function<void()>> finish;
};

/// An operation that MPI runs.
class Operation final : public BackendWork {
 public:
  Operation(std::shared_ptr<Channel> channel, Task task);

  bool isCompleted() override;
  void synchronize() override;
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class Engine;
  enum class State { kPending, kDone, kFailed };

  // The engine calls these functions one at a time.
  bool ready();
  /// Returns false if the start failed.
  bool start();
  State test();
  void time_out();
  /// Fails the operation and breaks the channel.
  void fail(const std::string& reason);

  // Any thread may call the functions below.
  /// Runs the functions in `finish`, once.
  void complete();
  bool ends_until(Clock::time_point until) override;
  Future make_future() const override;
  void complete_future(c10::ivalue::Future& future) const override;

  const std::shared_ptr<Channel> channel_;
  Task task_;
  std::optional<Requests> requests_;
  int source_ = -1;
  bool abandoned_ = false;
  /// Whether MPI has completed the operation, or the operation has failed.
  std::atomic<bool> arrived_{false};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> waiters_{0};
};

} // namespace ddp::backends::mpi
