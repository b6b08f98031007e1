// Messages over MPI whose sizes do not fit.
#include <tests/support/backend_waits.h>
#include <tests/support/mpi_backend.h>
#include <tests/support/mpi_ranks.h>

namespace ddp::test::mpi_messages_test {

/// Runs `body` on three ranks, which may end without MPI_Finalize: an operation
/// of theirs has failed.
void check_ranks(const std::function<void()>& body) {
  const auto outcome = mpi_ranks_outcome(3, [&] {
    body();
    mpi_backend()->barrier({})->wait();
    std::cout << "rank passed\n" << std::flush;
  });
  if (outcome) {
    INFO(outcome->output);
    REQUIRE_THAT(outcome->output, Has("rank passed"));
    REQUIRE_THAT(outcome->output, !Has("failed an assertion"));
  }
}

TEST_CASE("a message of another size is an error on the rank that gets it") {
  check_ranks([] {
    for (const int64_t sent : {3, 5}) {
      const auto backend = mpi_backend();
      Tensors message{torch::ones({backend->getRank() == 0 ? sent : 4})};
      if (backend->getRank() == 0) {
        backend->send(message, 1, 0)->wait();
      } else if (backend->getRank() == 1) {
        const auto error =
            error_after([&] { backend->recv(message, 0, 0)->wait(); });
        REQUIRE_THAT(error, Has("recv of 16 bytes (operation 1"));
        REQUIRE_THAT(error, Has(sent == 3 ? "sent 12 bytes" : "trunc"));
      }
    }
  });
}

TEST_CASE("splits that do not fit are errors on the rank that gets too much") {
  check_ranks([] {
    // Rank 0 sends two elements to rank 1 or to itself, which expects none.
    for (const int64_t target : {1, 0}) {
      const auto backend = mpi_backend();
      const auto rank = backend->getRank();
      std::vector<int64_t> sent{0, 0, 0};
      sent[target] = rank == 0 ? 2 : 0;
      std::vector<int64_t> expected{0, 0, 0};
      auto input = torch::ones({rank == 0 ? 2 : 0});
      auto output = torch::empty({0});
      const auto error = error_after([&] {
        backend->alltoall_base(output, input, expected, sent, {})->wait();
      });
      REQUIRE(error.empty() == (rank != target));
    }
    // Rank 2 expects an element of itself, which it does not send.
    const auto backend = mpi_backend();
    const auto own = backend->getRank() == 2 ? 1 : 0;
    std::vector<int64_t> sent{0, 0, 0};
    std::vector<int64_t> expected{0, 0, own};
    auto input = torch::empty({0});
    auto output = torch::empty({own});
    const auto error = error_after([&] {
      backend->alltoall_base(output, input, expected, sent, {})->wait();
    });
    REQUIRE(error.empty() == (own == 0));
  });
}

} // namespace ddp::test::mpi_messages_test
