// A program that uses MPI itself:
//   mpi_host LEVEL WHEN
// LEVEL: the thread level with which it initialises MPI (single, funneled,
// serialized, multiple), or none to leave that to ddp. WHEN: finalises MPI
// early (with live ddp objects), pending (with operations under way), late, or
// never.

#include <ddp/backends/mpi.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ATen/ops/full.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

namespace {

namespace mpi = ddp::backends::mpi;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

constexpr std::chrono::minutes kTimeout{1};

/// The number of communicators that were freed.
std::atomic<int> frees{0};

void initialize(const std::string& level) {
  const std::map<std::string, int> levels{
      {"single", MPI_THREAD_SINGLE},
      {"funneled", MPI_THREAD_FUNNELED},
      {"serialized", MPI_THREAD_SERIALIZED},
      {"multiple", MPI_THREAD_MULTIPLE}};
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, levels.at(level), &provided);
  TORCH_CHECK(provided == levels.at(level), "MPI gave thread level ", provided);
}

BackendPtr create(mpi::Communicator& communicator) {
  ddp::backends::BackendOptions options;
  options.timeout = std::chrono::seconds(10);
  return communicator.create(options);
}

/// Checks a sum over the ranks of `backend`.
void use(const BackendPtr& backend) {
  const int rank = backend->getRank();
  const int size = backend->getSize();
  std::vector<at::Tensor> sums{at::full({1000}, double(rank + 1))};
  const auto work = backend->allreduce(sums);
  std::vector<at::Tensor> sparse{at::full({3}, double(rank)).to_sparse()};
  backend->allreduce(sparse)->wait();
  // Messages to both sides before any wait.
  std::vector<at::Tensor> out{at::full({100000}, double(rank))};
  std::vector<at::Tensor> in{at::full({100000}, -1.0)};
  const auto receive = backend->recv(in, (rank + size - 1) % size, 3);
  const auto send = backend->send(out, (rank + 1) % size, 3);
  receive->wait();
  send->wait();
  work->wait();
  work->getFuture()->waitAndThrow();
  TORCH_CHECK(in[0].eq((rank + size - 1) % size).all().item<bool>());
  TORCH_CHECK(
      sparse[0].to_dense().eq(size * (size - 1) / 2).all().item<bool>());
  TORCH_CHECK(sums[0].eq(size * (size + 1) / 2).all().item<bool>());
}

/// Adopts a communicator of the program and uses it after the program frees its
/// own handle.
BackendPtr use_own_group() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &own);
  const auto communicator = mpi::library().adopt(&own, sizeof(own), kTimeout);
  const auto backend = create(*communicator);
  int own_rank = -1;
  MPI_Comm_rank(own, &own_rank);
  TORCH_CHECK(backend->getRank() == own_rank && backend->getSize() == 2);
  use(backend);
  MPI_Barrier(own);
  MPI_Comm_free(&own);
  use(backend);
  return backend;
}

void reject() {
  const auto rejected = [](MPI_Comm comm, size_t size) {
    try {
      mpi::library().adopt(&comm, size, kTimeout);
    } catch (const c10::ValueError&) {
      return true;
    }
    return false;
  };
  TORCH_CHECK(rejected(MPI_COMM_NULL, sizeof(MPI_Comm)));
  TORCH_CHECK(rejected(MPI_COMM_WORLD, sizeof(MPI_Comm) + 1));
}

/// Whether a barrier on a thread other than the main one is rejected.
bool is_refused_to_threads(const BackendPtr& backend) {
  bool rejected = false;
  std::thread([&] {
    try {
      backend->barrier()->wait();
    } catch (const c10::DistBackendError& error) {
      rejected =
          std::string(error.what()).find("main thread") != std::string::npos;
    }
  }).join();
  return rejected;
}

/// Whether the end of a communicator on another thread frees it.
bool is_freed_by_threads() {
  auto world = mpi::library().world(kTimeout);
  const int before = frees;
  std::thread([&] { world.reset(); }).join();
  return frees > before;
}

/// Finalises MPI while ranks sum, and wait for messages that no rank sends.
void finalize_early(const BackendPtr& backend) {
  MPI_Barrier(MPI_COMM_WORLD);
  const int rank = backend->getRank();
  const int size = backend->getSize();
  std::vector<at::Tensor> sums{at::full({1000}, double(rank + 1))};
  c10::intrusive_ptr<c10d::Work> sum;
  mpi::library().defer([&] { sum = backend->allreduce(sums); });
  std::vector<at::Tensor> in{at::full({2}, -1.0)};
  const auto receive = backend->recv(in, (rank + 1) % size, 3);
  MPI_Finalize();
  sum->wait();
  TORCH_CHECK(sums[0].eq(size * (size + 1) / 2).all().item<bool>());
  std::string reason;
  try {
    receive->wait();
  } catch (const c10::DistBackendError& error) {
    reason = error.what();
  }
  TORCH_CHECK(reason.find("MPI was finalized") != std::string::npos, reason);
}

void run(const std::string& level, const std::string& when) {
  TORCH_CHECK(!mpi::library().initialized());
  if (level != "none") {
    initialize(level);
    TORCH_CHECK(mpi::library().initialized());
  }
  const auto world = mpi::library().world(kTimeout);
  TORCH_CHECK(mpi::library().initialized());
  const auto backend = create(*world);
  use(backend);
  reject();
  const bool main_only = level == "single" || level == "funneled";
  TORCH_CHECK(is_refused_to_threads(backend) == main_only);
  TORCH_CHECK(
      is_freed_by_threads() == (level == "multiple" || level == "none"));
  use(backend);
  const auto own = use_own_group();
  if (when == "early") {
    MPI_Finalize();
    TORCH_CHECK(!mpi::library().initialized());
    bool rejected = false;
    try {
      backend->barrier();
    } catch (const c10::DistBackendError&) {
      rejected = true;
    }
    TORCH_CHECK(rejected, "a barrier after MPI_Finalize");
  }
  if (when == "pending") {
    finalize_early(backend);
  }
  std::printf("rank %d passed\n", world->rank());
}

} // namespace

/// Stands before MPI's function, as tools do.
int MPI_Comm_free(MPI_Comm* comm) {
  ++frees;
  return PMPI_Comm_free(comm);
}

int main(int /*argc*/, char** argv) {
  const std::string when = argv[2];
  run(argv[1], when);
  if (when == "late") {
    MPI_Finalize();
  }
}
