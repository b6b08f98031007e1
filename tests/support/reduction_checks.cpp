#include <tests/support/backend_checks.h>

#include <ATen/core/ivalue.h>

namespace ddp::test {

namespace {

void check_all_reduce(
    const BackendPtr& backend,
    torch::ScalarType dtype,
    const std::vector<Kind>& kinds) {
  const auto all = values_of_all(backend->getSize(), 1001, dtype);
  for (const auto kind : kinds) {
    INFO("dtype " << dtype << ", operation " << int(kind));
    const auto found = all_reduced(backend, dtype, 1001, kind);
    const auto expected = reduced(all, kind).to(dtype);
    // The sign of a complex product's zeros depends on the order.
    REQUIRE(
        (c10::isComplexType(dtype) ? torch::equal(found, expected)
                                   : same(found, expected)));
  }
}

void check_dtypes_of_arithmetic(const BackendPtr& backend) {
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
  const auto size = backend->getSize();
  const auto sum = reduced(values_of_all(size, 50, torch::kUInt8), Kind::SUM);
  for (const auto dtype : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {
    REQUIRE(same(all_reduced(backend, dtype, 50, Kind::SUM), sum.to(dtype)));
  }
  REQUIRE(same(
      all_reduced(backend, torch::kComplexHalf, 50, Kind::SUM),
      reduced(values_of_all(size, 50), Kind::SUM).to(torch::kComplexHalf)));
  const auto ones = torch::ones({5}, torch::kComplexHalf);
  Tensors means{ones.clone()};
  backend->allreduce(means, reduce_by(Kind::AVG))->wait();
  REQUIRE(same(means[0], ones));

  const auto truths = values_of_all(size, 50, torch::kBool);
  const auto any = reduced(truths, Kind::BOR);
  const auto every = reduced(truths, Kind::BAND);
  const auto odd = reduced(truths, Kind::BXOR);
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

/// A sparse tensor of `sizes` with values at `count` random places, some of
/// which coincide if there are few places.
torch::Tensor draw(
    const std::vector<int64_t>& sizes,
    int64_t sparse_dim,
    int64_t count,
    torch::ScalarType dtype) {
  Tensors places;
  for (int64_t i = 0; i < sparse_dim; ++i) {
    places.push_back(torch::randint(sizes[i], {count}, torch::kLong));
  }
  std::vector<int64_t> shape(sizes.begin() + sparse_dim, sizes.end());
  shape.insert(shape.begin(), count);
  const auto values = 100 * torch::randn(shape, torch::kDouble);
  return torch::sparse_coo_tensor(
      torch::stack(places),
      (c10::isSignedType(dtype) ? values : values.abs()).to(dtype),
      sizes);
}

/// Whether a sum in another order of the ranks has other bits.
bool order_shows(const BackendPtr& backend, const torch::Tensor& tensor) {
  std::vector<Tensors> all{Tensors(3)};
  Tensors own{tensor.to_dense()};
  for (auto& place : all[0]) {
    place = torch::empty_like(own[0]);
  }
  backend->allgather(all, own)->wait();
  const auto& parts = all[0];
  return !same(
      (parts[0] + parts[1]) + parts[2], parts[0] + (parts[1] + parts[2]));
}

} // namespace

void check_reduce(const BackendPtr& backend, const std::vector<Kind>& kinds) {
  const auto all = values_of_all(backend->getSize(), 100);
  const auto& own = all[backend->getRank()];
  for (const auto kind : kinds) {
    const auto expected = reduced(all, kind);
    for (int root = 0; root < backend->getSize(); ++root) {
      INFO("operation " << int(kind) << ", root " << root);
      Tensors tensors{own.clone()};
      c10d::ReduceOptions options;
      options.rootRank = root;
      options.reduceOp = kind;
      backend->reduce(tensors, options)->wait();
      if (backend->getRank() == root) {
        REQUIRE(same(tensors[0], expected));
      } else if (backend->getBackendName() != "gloo") {
        REQUIRE(same(tensors[0], own));
      }
    }
  }
}

void check_same_sparse(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE(a.is_sparse());
  REQUIRE(a.sizes() == b.sizes());
  REQUIRE(a.is_coalesced() == b.is_coalesced());
  REQUIRE(same(a._indices(), b._indices()));
  REQUIRE(same(a._values(), b._values()));
}

void check_sparse_rows(const BackendPtr& backend) {
  const auto rows = [](int64_t rank) {
    return torch::sparse_coo_tensor(
        torch::tensor({{rank, rank + 1}}),
        values_of(rank, 6).view({2, 3}),
        {10, 3});
  };
  auto expected = torch::zeros({10, 3});
  for (int64_t rank = 0; rank < backend->getSize(); ++rank) {
    expected += rows(rank).to_dense();
  }
  Tensors tensors{rows(backend->getRank())};
  const auto work = backend->allreduce(tensors, {});
  work->wait();
  REQUIRE(torch::equal(work->result()[0].to_dense(), expected));
}

void check_sparse_sums(const BackendPtr& backend, const BackendPtr& gloo) {
  const int64_t rank = backend->getRank();
  const std::vector<std::pair<std::vector<int64_t>, int64_t>> shapes{
      {{17}, 1}, {{17, 3}, 1}, {{5, 4}, 2}, {{5, 4, 2}, 2}, {{4, 3, 2, 2}, 1}};
  torch::manual_seed(rank);
  int64_t shown = 0;
  for (const auto dtype :
       {torch::kFloat,
        torch::kDouble,
        torch::kUInt8,
        torch::kInt32,
        torch::kInt64}) {
    for (const auto& [sizes, sparse_dim] : shapes) {
      // First none on rank 1, then some on all ranks, then none on any rank.
      for (const int64_t count :
           {9 * (rank % 2 ? 0 : 1 + rank), 30 + 7 * rank, int64_t{0}}) {
        const auto tensor = draw(sizes, sparse_dim, count, dtype);
        INFO(dtype << " " << tensor.sizes() << ", " << count);
        shown += order_shows(backend, tensor);
        for (const auto& input : {tensor, tensor.coalesce()}) {
          Tensors over_backend{input.clone()};
          Tensors over_gloo{input.clone()};
          const auto work = backend->allreduce(over_backend);
          gloo->allreduce(over_gloo)->wait();
          work->wait();
          check_same_sparse(over_backend[0], over_gloo[0]);
          REQUIRE(over_backend[0].is_coalesced());
          REQUIRE(work->result().at(0).is_same(over_backend[0]));
        }
      }
    }
  }
  REQUIRE(shown > 5); // or the order of the sums would not have been tested
}

void check_reductions(const BackendPtr& backend) {
  check_dtypes_of_arithmetic(backend);
  check_other_dtypes(backend);
  check_rounding(backend);
  check_reduce(backend, {Kind::SUM, Kind::MIN, Kind::MAX, Kind::AVG});
}

} // namespace ddp::test
