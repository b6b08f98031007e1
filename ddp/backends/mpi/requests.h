#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <ddp/backends/mpi/runtime.h>

#include <cstdint>
#include <vector>

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

  /// Whether all are complete. Throws `c10::DistBackendError` where one failed.
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

} // namespace ddp::backends::mpi
