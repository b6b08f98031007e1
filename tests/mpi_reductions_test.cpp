// What each reduction of the MPI backend computes, for which dtypes.

#include <tests/support/mpi_reductions.h>

using ddp::test::all_reduced;
using ddp::test::Kind;
using ddp::test::mpi_backend;
using ddp::test::mpi_ranks;
using ddp::test::reduced;
using ddp::test::same;
using ddp::test::Tensors;
using ddp::test::values_of_all;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

namespace {

void check_all_reduce(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    const std::vector<Kind>& kinds) {
  const auto all = values_of_all(backend->getSize(), 1001, dtype);
  for (const auto kind : kinds) {
    INFO("dtype " << dtype << ", operation " << int(kind));
    REQUIRE(same(
        all_reduced(backend, dtype, 1001, kind), reduced(all, kind).to(dtype)));
  }
}

void check_dtypes_of_arithmetic(const BackendPtr& backend) {
  REQUIRE(backend->getBackendName() == "mpi");
  const std::vector<Kind> arithmetic{
      Kind::SUM, Kind::PRODUCT, Kind::MIN, Kind::MAX};
  auto bitwise = arithmetic;
  bitwise.insert(bitwise.end(), {Kind::BAND, Kind::BOR, Kind::BXOR});
  auto mean = arithmetic;
  mean.push_back(Kind::AVG);
  for (const auto dtype :
       {torch::kUInt8,
        torch::kInt8,
        torch::kInt16,
        torch::kInt32,
        torch::kInt64}) {
    check_all_reduce(backend, dtype, bitwise);
  }
  for (const auto dtype :
       {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
    check_all_reduce(backend, dtype, mean);
  }
  for (const auto dtype : {torch::kComplexFloat, torch::kComplexDouble}) {
    check_all_reduce(backend, dtype, {Kind::SUM, Kind::PRODUCT, Kind::AVG});
  }
}

void check_other_dtypes(const BackendPtr& backend) {
  const auto sum = reduced(values_of_all(3, 50, torch::kUInt8), Kind::SUM);
  for (const auto dtype : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {
    REQUIRE(same(all_reduced(backend, dtype, 50, Kind::SUM), sum.to(dtype)));
  }
  REQUIRE(same(
      all_reduced(backend, torch::kComplexHalf, 50, Kind::SUM),
      reduced(values_of_all(3, 50), Kind::SUM).to(torch::kComplexHalf)));

  const auto truths = values_of_all(3, 50, torch::kBool);
  const auto any = truths[0] | truths[1] | truths[2];
  const auto every = truths[0] & truths[1] & truths[2];
  const auto odd = truths[0] ^ truths[1] ^ truths[2];
  REQUIRE(!torch::equal(any, every));
  for (const auto kind : {Kind::SUM, Kind::MAX, Kind::BOR}) {
    REQUIRE(same(all_reduced(backend, torch::kBool, 50, kind), any));
  }
  for (const auto kind : {Kind::PRODUCT, Kind::MIN, Kind::BAND}) {
    REQUIRE(same(all_reduced(backend, torch::kBool, 50, kind), every));
  }
  REQUIRE(same(all_reduced(backend, torch::kBool, 50, Kind::BXOR), odd));
}

void check_rounding(const BackendPtr& backend) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    torch::manual_seed(backend->getRank());
    Tensors tensors{torch::randn({1000}).to(dtype)};
    auto exact = tensors[0].to(torch::kDouble);
    Tensors exacts{exact};
    backend->allreduce(tensors)->wait();
    backend->allreduce(exacts)->wait();
    const double step = dtype == torch::kHalf ? 1.0 / 1024 : 1.0 / 128;
    REQUIRE(torch::allclose(
        tensors[0].to(torch::kDouble), exacts[0], step, 2 * step));
  }
}

void check_reduce(const BackendPtr& backend) {
  const auto all = values_of_all(3, 100);
  Tensors tensors{all[backend->getRank()].clone()};
  c10d::ReduceOptions options;
  options.rootRank = 1;
  options.reduceOp = Kind::AVG;
  backend->reduce(tensors, options)->wait();
  REQUIRE(same(
      tensors[0],
      backend->getRank() == 1 ? reduced(all, Kind::AVG)
                              : all[backend->getRank()]));
}

} // namespace

TEST_CASE("all_reduce and reduce have every operation for every dtype") {
  mpi_ranks(3, [] {
    const auto backend = mpi_backend();
    check_dtypes_of_arithmetic(backend);
    check_other_dtypes(backend);
    check_rounding(backend);
    check_reduce(backend);
  });
}
