// What the MPI backend does not take.

#include <tests/support/mpi_backend.h>

namespace ddp::test::mpi_refusals_test {

namespace {

void check_refusals(const BackendPtr& backend) {
  const auto error = [&](const torch::Tensor& tensor, Kind kind) {
    return words_of<c10::ValueError>([&] {
      Tensors tensors{tensor};
      backend->allreduce(tensors, reduce_by(kind))->wait();
    });
  };
  REQUIRE_THAT(
      error(torch::ones({4, 4}).t().slice(0, 0, 3), Kind::SUM),
      ContainsSubstring("strides"));
  REQUIRE_THAT(
      error(torch::eye(3).to_sparse(), Kind::MAX), ContainsSubstring("sparse"));
  REQUIRE_THAT(
      error(torch::eye(3).to_sparse_csr(), Kind::SUM),
      ContainsSubstring("SparseCsr"));
  REQUIRE_THAT(
      error(torch::ones({2}).to(torch::kFloat8_e5m2), Kind::SUM),
      ContainsSubstring("Float8_e5m2"));
  REQUIRE_THAT(error(torch::ones({2}), Kind::BXOR), ContainsSubstring("BXOR"));
  REQUIRE_THAT(
      error(torch::ones({2}, torch::kLong), Kind::AVG),
      ContainsSubstring("AVG"));
  REQUIRE_THAT(
      error(torch::ones({2}, torch::kComplexFloat), Kind::MAX),
      ContainsSubstring("MAX"));
  // Nothing of this was sent.
  REQUIRE(error(torch::ones({2}), Kind::SUM).empty());
  Tensors two{torch::ones({2}), torch::ones({2})};
  REQUIRE_THROWS_AS(backend->allreduce(two), c10::ValueError);
  c10d::BroadcastOptions root;
  root.rootRank = 3;
  Tensors one{torch::ones({2})};
  REQUIRE_THROWS_AS(backend->broadcast(one, root), c10::ValueError);
  REQUIRE_THROWS_AS(backend->send(one, 0, -1), c10::ValueError);
}

} // namespace

TEST_CASE("what the MPI backend cannot do is refused with the reason") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_refusals(backend);
  });
}

} // namespace ddp::test::mpi_refusals_test
