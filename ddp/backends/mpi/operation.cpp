#include <ddp/backends/mpi/operation.h>

#include <ddp/backends/mpi/engine.h>
#include <ddp/internal/check.h>
#include <ddp/support/error_text.h>

#include <ATen/core/LegacyTypeDispatch.h>

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
  // MPI-3 counts in int, so a long message is one element of a type of its
  // size.
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
  // Tests the requests individually: errors of MPI_Testall may call the
  // program's handler of MPI_COMM_WORLD, which ends the program by default.
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
  DDP_CHECK_WITH(
      DistBackendError,
      received == expected,
      "rank {} sent {} bytes, but {} were expected",
      status.MPI_SOURCE,
      received,
      expected);
  source_ = status.MPI_SOURCE;
}

Channel::Channel(std::unique_ptr<Comm> its_comm)
    : comm(std::move(its_comm)), rank(comm->rank()), size(comm->size()) {}

Operation::Operation(std::shared_ptr<Channel> channel, Task task)
    : BackendWork({"mpi", channel->rank, channel->size}, task),
      channel_(std::move(channel)),
      task_(std::move(task)),
      requests_(std::in_place, task_.largest) {
  number_ = ++channel_->launched;
}

bool Operation::isCompleted() {
  Engine::get().poll();
  return done_;
}

bool Operation::ends_until(Clock::time_point until) {
  return Engine::get().wait(*this, until);
}

void Operation::synchronize() {
  task_.staging.synchronize();
}

int Operation::sourceRank() const {
  DDP_CHECK(done_, "sourceRank: the receive is not complete");
  return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  Engine::get().take_over();
  return BackendWork::getFuture();
}

BackendWork::Future Operation::make_future() const {
  std::vector<at::Device> devices;
  if (const auto device = task_.staging.device()) {
    devices.push_back(*device);
  }
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), devices);
}

void Operation::complete_future(c10::ivalue::Future& future) const {
  task_.staging.on_streams([&] { BackendWork::complete_future(future); });
}

bool Operation::ready() {
  try {
    return task_.staging.ready();
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return true;
  }
}

bool Operation::start() {
  if (error_) {
    return false;
  }
  try {
    channel_->occupied = static_cast<bool>(task_.second_step);
    for (const auto& step : task_.steps) {
      step(*requests_);
    }
    return true;
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return false;
  }
}

Operation::State Operation::test() {
  try {
    if (!requests_->test()) {
      return State::kPending;
    }
    if (const auto step = std::exchange(task_.second_step, nullptr)) {
      step(*requests_);
      channel_->occupied = false;
      return State::kPending;
    }
    source_ = requests_->source();
    requests_.reset(); // on a thread that may call MPI
    return State::kDone;
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
    return State::kFailed;
  }
}

void Operation::time_out() {
  fail(timed_out_after(timeout_));
}

void Operation::fail(const std::string& reason) {
  const auto text = c10::str(description(), " failed: ", reason);
  channel_->first_error.set(text);
  channel_->occupied = false;
  set_error(text);
}

void Operation::complete() {
  if (claimed_.exchange(true)) {
    return;
  }
  try {
    if (!error_) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (const auto& function : task_.finish) {
        function();
      }
      task_.staging.finish();
    }
  } catch (const std::exception& error) {
    fail(detail::error_text(error));
  }
  const auto trouble = call_back(end_future());
  if (!trouble.empty()) {
    channel_->first_error.set(trouble); // the group's next use throws it
  }
  if (!abandoned_) {
    task_.steps.clear();
    task_.finish.clear();
  }
  finish(error_);
  done_ = true;
}

} // namespace ddp::backends::mpi
