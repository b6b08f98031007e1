// Sums of sparse tensors over MPI, which are gloo's bit for bit.
#include <ddp/backends/mpi.h>
#include <ddp/ddp.h>
#include <tests/support/backend_checks.h>
#include <tests/support/hook_training.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/mpi_ranks.h>
#include <tests/support/nets.h>
#include <tests/support/skip.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::mpi_reducer_test {

/// A step of a net, whose gradients are averaged in it.
void step(WordNet& net, const ProcessGroup& group, int64_t number) {
  reset_gradients(*net);
  torch::manual_seed(100 * number + group.rank());
  const auto words = torch::randint(10, {4 + 3 * group.rank()}, torch::kLong);
  // The bag is used by all ranks, by some, by none.
  net->forward(words, number == 0 || (number == 1 && group.rank() == 2))
      .pow(2)
      .sum()
      .backward();
}

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

MPI_TEST("sparse gradients over MPI are those over gloo") {
  const auto group = mpi_group();
  const auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(
      group.store(), int(group.rank()), int(group.size()));
  wrapped->setBackend(
      c10::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo_backend(group));
  wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  const auto gloo = ProcessGroup::from_c10d(wrapped);
  torch::manual_seed(1);
  WordNet net;
  WordNet peer;
  copy_parameters(*net, *peer);
  const Reducer reducer(net, group);
  const Reducer peer_reducer(peer, gloo);
  for (int64_t number = 0; number < 4; ++number) {
    step(net, group, number);
    step(peer, gloo, number);
    const auto& table = net->table->weight.grad();
    check_same_sparse(table, peer->table->weight.grad());
    REQUIRE(table._nnz() > 4);
    const auto& bag = net->bag->weight.grad();
    REQUIRE(bag.defined() == (number < 2));
    if (bag.defined()) {
      check_same_sparse(bag, peer->bag->weight.grad());
    }
  }
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
