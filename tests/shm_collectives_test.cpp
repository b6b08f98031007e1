// The collectives of the shm backend.

#include <tests/support/backend_checks.h>
#include <tests/support/shm_backend.h>

namespace ddp::test::shm_collectives_test {

/// Values whose sums round differently in another order.
torch::Tensor noise(int rank, int64_t numel, torch::ScalarType dtype) {
  torch::manual_seed(rank);
  return (torch::randn({numel}) * std::pow(10.0, rank % 5)).to(dtype);
}

/// The sum in the order of the ranks.
torch::Tensor sum_in_order(int size, int64_t numel, torch::ScalarType dtype) {
  const bool is_small = dtype == torch::kHalf || dtype == torch::kBFloat16;
  auto sum = noise(0, numel, dtype).to(is_small ? torch::kFloat : dtype);
  for (int rank = 1; rank < size; ++rank) {
    sum = sum + noise(rank, numel, dtype).to(sum.scalar_type());
  }
  return sum.to(dtype);
}

torch::Tensor summed(const BackendPtr& backend, const torch::Tensor& tensor) {
  Tensors tensors{tensor};
  backend->allreduce(tensors)->wait();
  return tensors[0];
}

void check_sums(const BackendPtr& backend, torch::ScalarType dtype) {
  const auto rank = backend->getRank();
  const int64_t in_slot =
      (1 << 20) / static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t numel :
       {int64_t{0},
        int64_t{1},
        int64_t{63},
        int64_t{20000},
        in_slot - 1,
        in_slot,
        in_slot + 1,
        3 * in_slot + 17}) {
    INFO(dtype << ", " << numel << " elements");
    const auto own = noise(rank, numel, dtype);
    const auto expected = sum_in_order(backend->getSize(), numel, dtype);
    REQUIRE(same(summed(backend, own.clone()), expected));
    REQUIRE(same(summed(backend, in_shared_memory(backend, own)), expected));
    // Shared memory on some ranks only.
    REQUIRE(same(
        summed(
            backend, rank % 2 ? in_shared_memory(backend, own) : own.clone()),
        expected));
  }
}

SHM_TEST(
    "collectives over shared memory move and reduce what they should",
    {1, 2, 3, 4, 7, 16}) {
  REQUIRE(backend->getBackendName() == "shm");
  check_movement(backend);
  check_reductions(backend);
}

SHM_TEST(
    "sums over shared memory are in the order of the ranks",
    {2, 3, 4, 7}) {
  for (const auto dtype :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    check_sums(backend, dtype);
  }
}

SHM_TEST("means of complex halves are computed over shared memory") {
  const auto ones = torch::ones({5}, torch::kComplexHalf);
  Tensors tensors{ones.clone()};
  c10d::ReduceOptions mean;
  mean.reduceOp = Kind::AVG;
  backend->reduce(tensors, mean)->wait();
  REQUIRE(same(tensors[0], ones));
  // `kMean` is a sum, which the group divides.
  group.all_reduce(tensors[0], ReduceOp::kMean);
  REQUIRE(same(tensors[0], ones));
}

SHM_TEST("pieces of several slots are moved") {
  const auto rank = backend->getRank();
  const int64_t numel = 700000; // 2.7 slots
  Tensors sent{noise(rank, numel, torch::kFloat)};
  Tensors tensors{sent[0].clone()};
  c10d::BroadcastOptions from_two;
  from_two.rootRank = 2;
  backend->broadcast(tensors, from_two)->wait();
  REQUIRE(same(tensors[0], noise(2, numel, torch::kFloat)));

  auto joined = torch::empty({3 * numel});
  backend->_allgather_base(joined, sent[0], {})->wait();
  Tensors all;
  for (int other = 0; other < 3; ++other) {
    all.push_back(noise(other, numel, torch::kFloat));
  }
  REQUIRE(same(joined, torch::cat(all)));

  auto part = torch::empty({numel});
  backend->_reduce_scatter_base(part, joined, {})->wait();
  REQUIRE(same(part, all[rank] + all[rank] + all[rank]));
}

SHM_TEST("sums of sparse tensors over shared memory are those over gloo") {
  check_sparse_sums(backend, gloo_backend(group));
}

} // namespace ddp::test::shm_collectives_test
