#pragma once

#include <common/first_error.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/backends/mpi/runtime.h>
#include <ddp/backends/mpi/staging/staging.h>

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>

namespace ddp::backends::mpi {

/// The tags of messages: the last ones, of the 32768 that every MPI has, are
/// ours.
constexpr int kExchangeTag = 32767;
constexpr int kFirstReservedTag = 32766;

/// The memory of one message.
struct Bytes {
  void* data = nullptr;
  int64_t size = 0;
};

/// A tensor's memory; that of an undefined one is empty.
Bytes bytes_of(const at::Tensor& tensor);

/// The MPI requests of one operation, and the types that they use.
class Requests {
 public:
  /// `largest`: how many elements one call may get.
  explicit Requests(int64_t largest) : largest_(largest) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  /// To be called where MPI may be.
  ~Requests();

  /// How many elements, or bytes, one call of MPI may get.
  int64_t largest() const {
    return largest_;
  }

  /// Where the next call puts its request.
  MPI_Request* next();

  /// A message's size as MPI takes it: that many elements of that type.
  struct Extent {
    int count;
    MPI_Datatype type;
  };
  Extent extent(int64_t bytes);

  void send(const Bytes& bytes, int peer, int tag, const Comm& comm);
  /// A message of another size is an error.
  void receive(const Bytes& bytes, int peer, int tag, const Comm& comm);

  /// Whether all are complete. Throws `c10::DistBackendError` if one failed.
  bool test();

  /// Where the last message that was received came from.
  int source() const {
    return source_;
  }

 private:
  void check_received(const MPI_Status& status, int64_t expected);

  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    /// The bytes that it is to receive; -1 where it receives no message.
    int64_t expected = -1;
  };

  int64_t largest_;
  c10::SmallVector<Pending, 1> pending_;
  /// How many are known to be complete.
  size_t tested_ = 0;
  std::vector<MPI_Datatype> types_;
  int source_ = -1;
};

/// What the operations on one communicator share. It lives as long as any.
struct Channel {
  explicit Channel(std::unique_ptr<Comm> its_comm);

  const std::unique_ptr<Comm> comm;
  const int rank;
  const int size;
  /// Whether an operation has steps left that later ones must not overtake.
  std::atomic<bool> occupied{false};
  /// Numbers the operations.
  std::atomic<uint64_t> launched{0};
  detail::FirstError first_error;
};

/// What an operation does.
struct Task : OperationInfo {
  Staging staging;
  int64_t largest = 0;
  /// Make MPI's calls. They and `finish` hold the tensors alive.
  std::vector<std::function<void(Requests&)>> steps;
  /// What follows when MPI is done with these. Operations behind this one wait
  /// for that. `finish` must hold its tensors.
  std::function<void(Requests&)> second_step;
  /// What is left to do when MPI is done.
  std::vector<std::function<void()>> finish;
};

/// An operation that MPI works at.
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

  // For the engine, which calls them one at a time.
  bool ready();
  /// False if it failed.
  bool start();
  State test();
  void time_out();
  /// Fails it and breaks the channel.
  void fail(const std::string& reason);

  // For any thread.
  /// Does what is left after MPI, once.
  void complete();
  bool ends_until(Clock::time_point until) override;
  Future make_future() const override;
  void complete_future(c10::ivalue::Future& future) const override;

  const std::shared_ptr<Channel> channel_;
  Task task_;
  std::optional<Requests> requests_;
  int source_ = -1;
  bool abandoned_ = false;
  /// MPI is done with it, or it failed.
  std::atomic<bool> arrived_{false};
  std::atomic<bool> claimed_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> waiters_{0};
};

} // namespace ddp::backends::mpi
