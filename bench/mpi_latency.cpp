// What an all-reduce over backend mpi costs beside MPI's own and gloo's, where
// the caller waits at once: batches of calls in turns, on one communicator
// each. Run: mpirun -n 2 ddp_bench_mpi_latency [rounds]

#include <bench/quartiles.h>
#include <ddp/ddp.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

constexpr int64_t kBatchBytes = 1 << 20;
constexpr int64_t kLargestBatch = 50;

struct Case {
  const char* name;
  std::function<void(at::Tensor&)> all_reduce;
  std::vector<double> microseconds;
};

/// Of one call, in a batch of `calls`.
double microseconds(const Case& c, at::Tensor& tensor, int64_t calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) {
    c.all_reduce(tensor);
  }
  const std::chrono::duration<double, std::micro> took =
      std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(calls);
}

void all_reduce_blocking(at::Tensor& tensor) {
  MPI_Allreduce(
      MPI_IN_PLACE,
      tensor.data_ptr(),
      static_cast<int>(tensor.numel()),
      MPI_FLOAT,
      MPI_SUM,
      MPI_COMM_WORLD);
}

void all_reduce_nonblocking(at::Tensor& tensor) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(
      MPI_IN_PLACE,
      tensor.data_ptr(),
      static_cast<int>(tensor.numel()),
      MPI_FLOAT,
      MPI_SUM,
      MPI_COMM_WORLD,
      &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

std::function<void(at::Tensor&)> all_reduce_of(const ddp::ProcessGroup& group) {
  return [backend = group.c10d()->getBackend(c10::kCPU)](at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    backend->allreduce(tensors)->wait();
  };
}

void compare(std::vector<Case>& cases, int64_t bytes, int rounds) {
  auto tensor = torch::zeros({bytes / 4});
  const int64_t calls =
      std::clamp(kBatchBytes / bytes, int64_t{1}, kLargestBatch);
  for (auto& c : cases) {
    c.microseconds.clear();
  }
  for (int round = -2; round < rounds; ++round) {
    for (auto& c : cases) {
      const double time = microseconds(c, tensor, calls);
      if (round >= 0) {
        c.microseconds.push_back(time);
      }
    }
  }
}

void print(const std::vector<Case>& cases, int64_t bytes) {
  const double base = bench::quartiles(cases[0].microseconds).median;
  for (const auto& c : cases) {
    const auto [low, median, high] = bench::quartiles(c.microseconds);
    std::printf(
        "%9lld bytes  %-26s %10.2f us  [%.2f, %.2f]  %6.1f times\n",
        static_cast<long long>(bytes),
        c.name,
        median,
        low,
        high,
        median / base);
  }
}

void run(int rounds) {
  const auto mpi = ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD);
  const auto gloo = ddp::ProcessGroup::from_mpi(
      MPI_COMM_WORLD, ddp::ProcessGroupOptions().backend("gloo"));
  std::vector<Case> cases{
      {"MPI_Allreduce", all_reduce_blocking, {}},
      {"MPI_Iallreduce", all_reduce_nonblocking, {}},
      {"backend mpi", all_reduce_of(mpi), {}},
      {"ddp::ProcessGroup, mpi",
       [&](at::Tensor& tensor) { mpi.all_reduce(tensor); },
       {}},
      {"backend gloo", all_reduce_of(gloo), {}}};
  for (const int64_t bytes : {4, 1 << 10, 64 << 10, 1 << 20, 25 << 20}) {
    compare(cases, bytes, bytes > (1 << 20) ? std::min(rounds, 20) : rounds);
    if (mpi.rank() == 0) {
      print(cases, bytes);
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  at::set_num_threads(1);
  run(argc > 1 ? std::atoi(argv[1]) : 100);
  MPI_Finalize();
  return 0;
}
