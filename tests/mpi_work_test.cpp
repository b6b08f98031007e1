// How operations of the MPI backend go on, end and are waited for.

#include <tests/support/backend_checks.h>
#include <tests/support/backend_waits.h>
#include <tests/support/mpi_backend.h>

#include <iostream>

namespace ddp::test::mpi_work_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("operations overlap and are waited for in any order") {
  mpi_ranks(3, [] {
    const auto values = [](int, const auto& tensor) { return tensor; };
    check_overlap(mpi_backend(1000), mpi_backend(), values);
  });
}

TEST_CASE("an operation that nobody waits for ends by itself") {
  mpi_ranks(3, [] { check_left_alone(mpi_backend(1000)); });
}

TEST_CASE("a wait that ends too early does no harm") {
  mpi_ranks(3, [] { check_early_wait(mpi_backend(), mpi_backend()); });
}

TEST_CASE("where a rank does not come the others time out and end") {
  const auto outcome = mpi_ranks_outcome(4, [] {
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
          ContainsSubstring(
              "all_reduce of 12000 bytes (operation 1 of its group) over mpi "
              "on rank " +
              std::to_string(rank) + " of 4 failed: timed out after 1 s"));
      REQUIRE(work->isCompleted());
      REQUIRE(!work->isSuccess());
      REQUIRE(work->getFuture()->hasError());
      REQUIRE_THAT(
          error_after(milliseconds(0), [&] { backend->barrier({})->wait(); }),
          ContainsSubstring("the group failed before: all_reduce"));
    }
    whole->barrier({})->wait(); // other groups still work
    std::cout << "rank " + std::to_string(rank) + " passed\n" << std::flush;
  });
  if (outcome) {
    require_passed(*outcome, 4);
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
    REQUIRE(outcome->exit_code != 0); // mpirun saw it
    REQUIRE(outcome->seconds < seconds(15));
  }
}

TEST_CASE("a monitored barrier names the ranks that do not come") {
  const auto outcome = mpi_ranks_outcome(4, [] {
    const auto backend = mpi_backend();
    const auto whole = mpi_backend();
    check_monitored_barrier(backend);
    whole->barrier({})->wait();
    std::cout << "rank " + std::to_string(backend->getRank()) + " passed\n"
              << std::flush;
  });
  if (outcome) {
    require_passed(*outcome, 4);
  }
}

TEST_CASE("a message of another size is an error on the rank that gets it") {
  const auto outcome = mpi_ranks_outcome(3, [] {
    for (const int64_t sent : {3, 5}) {
      const auto backend = mpi_backend();
      Tensors message{torch::ones({backend->getRank() == 0 ? sent : 4})};
      if (backend->getRank() == 0) {
        backend->send(message, 1, 0)->wait();
      } else if (backend->getRank() == 1) {
        const auto error = error_after(
            milliseconds(0), [&] { backend->recv(message, 0, 0)->wait(); });
        REQUIRE_THAT(error, ContainsSubstring("recv of 16 bytes (operation 1"));
        REQUIRE_THAT(
            error, ContainsSubstring(sent == 3 ? "sent 12 bytes" : "trunc"));
      }
    }
    mpi_backend()->barrier({})->wait();
    std::cout << "rank passed\n" << std::flush;
  });
  if (outcome) {
    INFO(outcome->output);
    REQUIRE_THAT(outcome->output, ContainsSubstring("rank passed"));
    REQUIRE_THAT(outcome->output, !ContainsSubstring("failed an assertion"));
  }
}

} // namespace ddp::test::mpi_work_test
