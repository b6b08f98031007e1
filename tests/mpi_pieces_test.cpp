// Tensors longer than one call of MPI may take.

#include <tests/support/mpi_backend.h>

namespace ddp::test::mpi_pieces_test {

namespace {

const std::vector<int64_t> kSizes{0, 1, 7, 13, 1000, 100003};

} // namespace

TEST_CASE("tensors of any size are passed in pieces where they are long") {
  mpi_ranks(4, [] {
    for (const int64_t largest :
         {backends::mpi::kLargestPiece, int64_t(7), int64_t(4001)}) {
      const auto backend = mpi_backend(largest);
      const int64_t rank = backend->getRank();
      for (const auto count : kSizes) {
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
  });
}

} // namespace ddp::test::mpi_pieces_test
