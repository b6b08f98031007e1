// Sums of sparse tensors over MPI, which are gloo's bit for bit.
#include <ddp/backends/mpi.h>
#include <ddp/ddp.h>
#include <tests/support/backend_checks.h>
#include <tests/support/hook_training.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/mpi_ranks.h>
#include <tests/support/skip.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::mpi_reducer_test {

MPI_TEST("sums of sparse tensors over MPI are those over gloo") {
  const auto group = mpi_group();
  const auto mpi = group.c10d()->getBackend(c10::kCPU);
  const auto gloo = gloo_backend(group);
  REQUIRE(mpi->getBackendName() == "mpi");
  check_sparse_sums(mpi, gloo);
}

MPI_TEST("operations keep their order around sums of sparse tensors") {
  const auto backend = mpi_backend();
  const auto other = mpi_backend();
  const int64_t rank = backend->getRank();
  std::vector<Tensors> sparse;
  std::vector<Tensors> dense;
  std::vector<std::vector<Tensors>> gathered;
  std::vector<WorkPtr> works;
  for (int64_t i = 0; i < 20; ++i) {
    // All but the last operation meet ranks that are not there yet.
    if (i % 3 == rank) {
      Tensors late{torch::ones({100000})};
      other->allreduce(late)->wait();
    } else {
      Tensors early{torch::ones({100000})};
      works.push_back(other->allreduce(early));
    }
    sparse.push_back({torch::full({5 * i}, double(rank + i)).to_sparse()});
    dense.push_back({torch::full({7}, double(rank + i))});
    gathered.push_back(
        {{torch::empty({i}), torch::empty({i}), torch::empty({i})}});
    Tensors own{torch::full({i}, double(10 * rank + i))};
    works.push_back(backend->allreduce(sparse.back()));
    works.push_back(backend->allgather(gathered.back(), own));
    works.push_back(backend->allreduce(dense.back()));
  }
  works.back()->getFuture()->waitAndThrow(); // it ends by itself
  std::for_each(
      works.rbegin(), works.rend(), [](const WorkPtr& work) { work->wait(); });
  for (int64_t i = 0; i < 20; ++i) {
    REQUIRE(sparse[i][0].to_dense().eq(3 + 3 * i).all().item<bool>());
    REQUIRE(dense[i][0].eq(3 + 3 * i).all().item<bool>());
    for (int64_t from = 0; from < 3; ++from) {
      REQUIRE(gathered[i][0][from].eq(10 * from + i).all().item<bool>());
    }
  }
}

TEST_CASE("sparse tensors that do not fit together are an error on all ranks") {
  mpi_ranks_that_leave(3, [] {
    const auto whole = mpi_backend();
    for (const bool by_dtype : {false, true}) {
      const auto backend = mpi_backend();
      const bool differs = backend->getRank() == 1;
      Tensors tensors{
          torch::eye(differs && !by_dtype ? 5 : 4)
              .to(differs && by_dtype ? torch::kDouble : torch::kFloat)
              .to_sparse()};
      Tensors behind{torch::ones({3})};
      const auto error_of = [&](Tensors& summed) {
        return words_of<c10::DistBackendError>(
            [&] { backend->allreduce(summed)->wait(); });
      };
      REQUIRE_THAT(error_of(tensors), Has("dtype, sizes or the number"));
      REQUIRE_THAT(error_of(behind), Has("the group failed before"));
      whole->barrier({})->wait();
    }
  });
}

// Communication hooks over MPI.

TEST_CASE("hooks average over MPI, those of several collectives too") {
  const auto reason = backends::mpi::unavailable();
  if (!reason.empty()) {
    skip(reason);
  }
  mpi_ranks(3, [] {
    const auto group = init_process_group(ProcessGroupOptions().backend("mpi"));
    const auto full_rank = PowerSGDOptions() // so that it is exact
                               .start_iteration(2)
                               .matrix_approximation_rank(100)
                               .min_compression_rate(0);
    for (const auto& hook : std::vector<std::shared_ptr<CommHook>>{
             bf16_compress_hook(),
             std::make_shared<PowerSGDHook>(full_rank),
             std::make_shared<QuantizationHook>(),
             std::make_shared<HookChain>(std::vector<std::shared_ptr<CommHook>>{
                 std::make_shared<AllReduceHook>()})}) {
      check_mean(group, hook, 0.03);
    }
  });
}

} // namespace ddp::test::mpi_reducer_test
