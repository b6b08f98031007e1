// Progress, ends and waits of the MPI backend's operations; rejected arguments;
// tensors longer than one call of MPI may take; sums of sparse tensors, with
// gloo's bits; and communication hooks.
#include <tests/support/backend_checks.h>
#include <tests/support/backend_waits.h>
#include <tests/support/hook_training.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/mpi_ranks.h>

#include <ddp/backends/mpi.h>
#include <ddp/ddp.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::mpi_work_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

MPI_TEST("operations overlap and are waited for in any order") {
  const auto values = [](int, const auto& tensor) { return tensor; };
  check_overlap(mpi_backend(1000), mpi_backend(), values);
}

MPI_TEST("an operation that nobody waits for ends by itself") {
  check_left_alone(mpi_backend(1000));
}

MPI_TEST("a wait that ends too early does no harm") {
  check_early_wait(mpi_backend(), mpi_backend());
}

TEST_CASE("where a rank does not come the others time out and end") {
  const auto outcome = mpi_ranks_that_leave(4, [] {
    const auto backend = mpi_backend(1000, milliseconds(1000));
    const auto whole = mpi_backend();
    const auto rank = backend->getRank();
    if (rank != 2) {
      Tensors sums{torch::ones({3000})};
      WorkPtr work;
      const auto error = error_after(milliseconds(990), [&] {
        work = backend->allreduce(sums);
        work->wait();
      });
      REQUIRE_THAT(
          error,
          Has("all_reduce of 12000 bytes (operation 1 of its group) over mpi "
              "on rank " +
              std::to_string(rank) + " of 4 failed: timed out after 1 s"));
      check_failed(*work, backend);
    }
    whole->barrier({})->wait(); // other groups still work
  });
  if (outcome) {
    REQUIRE(outcome->seconds < seconds(15));
  }
}

TEST_CASE("an operation that is left in flight does not keep the job alive") {
  const auto outcome = mpi_ranks_outcome(3, [] {
    const auto backend = mpi_backend();
    const auto whole = mpi_backend();
    Tensors sums{torch::ones({10})};
    if (backend->getRank() == 1) {
      backend->allreduce(sums);
    }
    whole->barrier({})->wait();
  });
  if (outcome) {
    INFO(outcome->output);
    REQUIRE(outcome->exit_code != 0); // mpirun noticed it
    REQUIRE(outcome->seconds < seconds(15));
  }
}

TEST_CASE("a monitored barrier names the ranks that do not come") {
  mpi_ranks_that_leave(4, [] {
    const auto whole = mpi_backend();
    for (const bool wait_all_ranks : {true, false}) {
      check_monitored_barrier(mpi_backend(), wait_all_ranks);
      whole->barrier({})->wait();
    }
  });
}

MPI_TEST("what the MPI backend cannot do is refused with the reason") {
  const auto backend = mpi_backend();
  const auto error = [&](const torch::Tensor& tensor, Kind kind) {
    return words_of<c10::ValueError>([&] {
      Tensors tensors{tensor};
      backend->allreduce(tensors, reduce_by(kind))->wait();
    });
  };
  REQUIRE_THAT(
      error(torch::ones({4, 4}).t().slice(0, 0, 3), Kind::SUM), Has("strides"));
  REQUIRE_THAT(error(torch::eye(3).to_sparse(), Kind::MAX), Has("sparse"));
  REQUIRE_THAT(
      error(torch::eye(3).to_sparse_csr(), Kind::SUM), Has("SparseCsr"));
  REQUIRE_THAT(
      error(torch::ones({2}).to(torch::kFloat8_e5m2), Kind::SUM),
      Has("Float8_e5m2"));
  REQUIRE_THAT(error(torch::ones({2}), Kind::BXOR), Has("BXOR"));
  REQUIRE_THAT(error(torch::ones({2}, torch::kLong), Kind::AVG), Has("AVG"));
  REQUIRE_THAT(
      error(torch::ones({2}, torch::kComplexFloat), Kind::MAX), Has("MAX"));
  // Nothing was sent by these calls.
  REQUIRE(error(torch::ones({2}), Kind::SUM).empty());
  Tensors two{torch::ones({2}), torch::ones({2})};
  REQUIRE_THROWS_AS(backend->allreduce(two), c10::ValueError);
  c10d::BroadcastOptions root;
  root.rootRank = 3;
  Tensors one{torch::ones({2})};
  REQUIRE_THROWS_AS(backend->broadcast(one, root), c10::ValueError);
  REQUIRE_THROWS_AS(backend->send(one, 0, -1), c10::ValueError);
}

MPI_TEST("tensors of any size are passed in pieces where they are long", 4) {
  for (const int64_t largest :
       {backends::mpi::kLargestPiece, int64_t(7), int64_t(4001)}) {
    const auto backend = mpi_backend(largest);
    const int64_t rank = backend->getRank();
    for (const int64_t count : {0, 1, 7, 13, 1000, 100003}) {
      if (count / largest > 2000) {
        continue;
      }
      INFO(count << " elements in pieces of " << largest);
      const auto all = values_of_all(4, count);
      REQUIRE(same(
          all_reduced(backend, torch::kFloat, count, Kind::SUM),
          reduced(all, Kind::SUM)));

      Tensors tensors{values_of(rank, count)};
      c10d::BroadcastOptions root;
      root.rootRank = 2;
      backend->broadcast(tensors, root)->wait();
      REQUIRE(same(tensors[0], all[2]));

      auto own = all[rank];
      auto gathered = torch::empty({4 * count});
      backend->_allgather_base(gathered, own, {})->wait();
      REQUIRE(same(gathered, torch::cat(all)));

      auto part = torch::empty({count});
      auto whole = torch::cat(all) * double(rank + 1);
      backend->_reduce_scatter_base(part, whole, {})->wait();
      REQUIRE(same(part, all[rank] * 10));

      std::vector<int64_t> even;
      auto exchanged = torch::empty({4 * count});
      backend->alltoall_base(exchanged, whole, even, even, {})->wait();
      REQUIRE(same(exchanged, torch::cat({own, own * 2, own * 3, own * 4})));

      Tensors message{rank == 1 ? all[1].clone() : torch::empty({count})};
      if (rank == 1) {
        backend->send(message, 3, 5)->wait();
      } else if (rank == 3) {
        backend->recv(message, 1, 5)->wait();
        REQUIRE(same(message[0], all[1]));
      }
    }
  }
}

MPI_TEST("the smallest and largest of NaN and small floats are NaN") {
  const auto backend = mpi_backend();
  for (const auto dtype :
       {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
    for (const Kind kind : {Kind::MIN, Kind::MAX}) {
      auto values = torch::ones({3});
      values[backend->getRank()] = std::nan("");
      Tensors tensors{values.to(dtype)};
      backend->allreduce(tensors, reduce_by(kind))->wait();
      REQUIRE(tensors[0].isnan().all().item<bool>());
    }
  }
}

// The start and end of MPI, and communicators.

namespace mpi = backends::mpi;

/// Runs mpi_host on 4 ranks and requires success.
void host(const std::string& level, const std::string& when) {
  const auto outcome = mpirun(4, {{program("mpi_host"), level, when}, {}});
  INFO(level << ", " << when);
  output_of(outcome);
  require_passed(outcome, 4);
}

TEST_CASE("MPI that the program initialised without threads is used") {
  host("single", "late");
  host("funneled", "early");
}

TEST_CASE("MPI that the program initialised with threads is used") {
  host("multiple", "late");
}

TEST_CASE("operations that are under way when MPI is finalised end or fail") {
  host("single", "pending");
  host("multiple", "pending");
}

TEST_CASE("a thread frees no communicator while the program may call MPI") {
  host("serialized", "late");
}

TEST_CASE("MPI that ddp initialised ends with the process") {
  host("none", "never");
  host("none", "early");
}

// By default, Open MPI's algorithm takes three times as long between hosts.
MPI_TEST("Open MPI reduces by Rabenseifner's algorithm", 2) {
  mpi::library().world(std::chrono::minutes(1));
  const auto* chosen = std::getenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm");
  REQUIRE(chosen != nullptr);
  REQUIRE(std::string(chosen) == "3");
}

MPI_TEST("communicators split and tell each other texts", 4) {
  REQUIRE(mpi::unavailable().empty());
  REQUIRE(!mpi::library().initialized());
  const auto world = mpi::library().world(std::chrono::minutes(1));
  REQUIRE(mpi::library().initialized());
  REQUIRE(world->size() == 4);
  const int rank = world->rank();
  const auto text = std::string(100000, 'x') + "y";
  REQUIRE(world->broadcast(rank == 0 ? text : "other") == text);
  REQUIRE(world->broadcast(rank == 0 ? "" : "other").empty());

  // Ranks 3, 2, 1 in this order; rank 0 is in no part.
  const auto part = world->split(rank == 0 ? -1 : 5, -rank);
  REQUIRE((part == nullptr) == (rank == 0));
  if (part) {
    REQUIRE(part->size() == 3);
    REQUIRE(part->rank() == 3 - rank);
    const auto name = std::to_string(rank);
    REQUIRE(part->broadcast(name) == "3");
    const auto backend = part->create(mpi_timeout(std::chrono::seconds(10)));
    Tensors sums{torch::full({10}, double(rank))};
    backend->allreduce(sums)->wait();
    REQUIRE(sums[0].eq(6).all().item<bool>());
    check_reduce(backend, {Kind::SUM, Kind::MIN, Kind::MAX});
    check_sparse_rows(backend);
  }
  REQUIRE_THROWS_AS(world->split(-2, 0), c10::ValueError);
  // Groups can be created and destroyed repeatedly.
  for (int i = 0; i < 50; ++i) {
    const auto backend = world->create(mpi_timeout(std::chrono::seconds(10)));
    backend->barrier({})->wait();
  }
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
    // Before all except the last operation, some ranks are late.
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
      REQUIRE_THAT(error_of(behind), Has("the group has already failed"));
      whole->barrier({})->wait();
    }
  });
}

MPI_TEST("what a callback throws over MPI is the error of the next use") {
  const auto whole = mpi_backend();
  const auto backend = mpi_backend();
  const bool throws = backend->getRank() == 0;
  Tensors tensors{torch::ones({5})};
  WorkPtr work;
  if (throws) {
    work = backend->allreduce(tensors);
    work->getFuture()->addCallback([](c10::ivalue::Future&) { throw 42; });
  }
  whole->barrier({})->wait(); // the others start once the callback is set
  if (!throws) {
    work = backend->allreduce(tensors);
  }
  work->wait();
  if (throws) {
    REQUIRE_THAT(
        error_after([&] { backend->allreduce(tensors)->wait(); }),
        Has("a callback on the future of all_reduce threw"));
  }
  whole->barrier({})->wait();
}

// Communication hooks over MPI.

MPI_TEST("hooks average over MPI, those of several collectives too") {
  const auto group = mpi_group();
  const auto full_rank = // which makes it exact
      early().matrix_approximation_rank(100).min_compression_rate(0);
  for (const auto& hook : Hooks{
           bf16_compress_hook(),
           std::make_shared<PowerSGDHook>(full_rank),
           std::make_shared<QuantizationHook>(),
           chain_of({std::make_shared<AllReduceHook>()})}) {
    check_mean(group, hook, 0.03);
  }
  check_compression_together(group);
}

} // namespace ddp::test::mpi_work_test
