#include <ddp/backends/mpi/requests.h>

#include <ddp/internal/check.h>

#include <array>

namespace ddp::backends::mpi {

Bytes bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return {};
  }
  return {tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes())};
}

Requests::~Requests() {
  for (auto& type : types_) {
    MPI_Type_free(&type);
  }
}

MPI_Request* Requests::next() {
  return &pending_.emplace_back().request;
}

Requests::Extent Requests::extent(int64_t bytes) {
  if (bytes <= largest_) {
    return {static_cast<int>(bytes), MPI_BYTE};
  }
  // MPI-3 counts in int: one element of a type that is as long as the message.
  MPI_Datatype block = MPI_DATATYPE_NULL;
  check_mpi(
      MPI_Type_contiguous(static_cast<int>(largest_), MPI_BYTE, &block),
      "MPI_Type_contiguous");
  std::array<int, 2> counts{
      static_cast<int>(bytes / largest_), static_cast<int>(bytes % largest_)};
  std::array<MPI_Aint, 2> offsets{0, bytes - bytes % largest_};
  std::array<MPI_Datatype, 2> parts{block, MPI_BYTE};
  MPI_Datatype whole = MPI_DATATYPE_NULL;
  const int code = MPI_Type_create_struct(
      2, counts.data(), offsets.data(), parts.data(), &whole);
  MPI_Type_free(&block);
  check_mpi(code, "MPI_Type_create_struct");
  types_.push_back(whole);
  check_mpi(MPI_Type_commit(&types_.back()), "MPI_Type_commit");
  return {1, whole};
}

void Requests::send(const Bytes& bytes, int peer, int tag, const Comm& comm) {
  const auto [count, type] = extent(bytes.size);
  check_mpi(
      MPI_Isend(bytes.data, count, type, peer, tag, comm.get(), next()),
      "MPI_Isend");
}

void Requests::receive(
    const Bytes& bytes,
    int peer,
    int tag,
    const Comm& comm) {
  const auto [count, type] = extent(bytes.size);
  check_mpi(
      MPI_Irecv(bytes.data, count, type, peer, tag, comm.get(), next()),
      "MPI_Irecv");
  pending_.back().expected = bytes.size;
}

bool Requests::test() {
  // One by one: errors of MPI_Testall may go to the handler of MPI_COMM_WORLD,
  // which is the program's and by default ends it.
  for (; tested_ < pending_.size(); ++tested_) {
    auto& [request, expected] = pending_[tested_];
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&request, &done, &status), "MPI_Test");
    if (!done) {
      return false;
    }
    if (expected >= 0) {
      check_received(status, expected);
    }
  }
  return true;
}

void Requests::check_received(const MPI_Status& status, int64_t expected) {
  MPI_Count received = 0;
  check_mpi(
      MPI_Get_elements_x(&status, MPI_BYTE, &received), "MPI_Get_elements_x");
  if (received != expected) {
    DDP_THROW(
        DistBackendError,
        "rank {} sent {} bytes where {} were expected",
        status.MPI_SOURCE,
        received,
        expected);
  }
  source_ = status.MPI_SOURCE;
}

} // namespace ddp::backends::mpi
