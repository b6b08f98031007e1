#include <ddp/backends/mpi/communicator.h>

#include <ddp/backends/mpi/backend.h>
#include <ddp/backends/mpi/error.h>

#include <c10/util/Exception.h>

#include <limits>

namespace ddp::backends::mpi {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::unique_ptr<Comm> comm)
      : channel_(std::make_shared<Channel>(std::move(comm))) {}

  int rank() const override {
    return channel_->rank;
  }

  int size() const override {
    return channel_->size;
  }

  std::shared_ptr<Communicator> split(int color, int key) override;
  std::string broadcast(const std::string& text) override;
  c10::intrusive_ptr<c10d::Backend> create(
      const BackendOptions& options,
      int64_t largest) override;

 private:
  const std::shared_ptr<Channel> channel_;
};

std::shared_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  TORCH_CHECK_VALUE(
      color >= -1, "split takes a color from 0 on, or -1; got ", color);
  MPI_Comm part = MPI_COMM_NULL;
  {
    const auto guard = Engine::get().exclusive();
    check_mpi(
        MPI_Comm_split(
            channel_->comm->get(),
            color == -1 ? MPI_UNDEFINED : color,
            key,
            &part),
        "MPI_Comm_split");
  }
  return part == MPI_COMM_NULL
      ? nullptr
      : make_communicator(std::make_unique<Comm>(part));
}

std::string MpiCommunicator::broadcast(const std::string& text) {
  const auto guard = Engine::get().exclusive();
  std::string result = text;
  auto length = static_cast<int64_t>(text.size());
  const auto comm = channel_->comm->get();
  check_mpi(MPI_Bcast(&length, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
  TORCH_CHECK_VALUE(
      length <= std::numeric_limits<int>::max(),
      "broadcast of a text of ",
      length,
      " bytes over mpi; it can be 2 GiB");
  result.resize(static_cast<size_t>(length));
  check_mpi(
      MPI_Bcast(result.data(), static_cast<int>(length), MPI_CHAR, 0, comm),
      "MPI_Bcast");
  return result;
}

c10::intrusive_ptr<c10d::Backend> MpiCommunicator::create(
    const BackendOptions& options,
    int64_t largest) {
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

} // namespace

std::shared_ptr<Communicator> make_communicator(std::unique_ptr<Comm> comm) {
  return std::make_shared<MpiCommunicator>(std::move(comm));
}

std::unique_ptr<Comm> duplicate(MPI_Comm comm) {
  const auto guard = Engine::get().exclusive();
  MPI_Comm result = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &result), "MPI_Comm_dup");
  return std::make_unique<Comm>(result);
}

} // namespace ddp::backends::mpi
