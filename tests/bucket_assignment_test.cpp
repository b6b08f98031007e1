#include <tests/support/catch.h>

#include <ddp/reducer/buckets/bucket_assignment.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace ddp::test::bucket_assignment_test {

using Buckets = std::vector<BucketIndices>;

at::Tensor floats(int64_t count) {
  return torch::empty({count}, torch::kFloat);
}
at::Tensor doubles(int64_t count) {
  return torch::empty({count}, torch::kDouble);
}

TEST_CASE("the given order is kept") {
  REQUIRE(
      assign_buckets({floats(10), floats(10), floats(10)}, {80}, {2, 0, 1}) ==
      Buckets{{2, 0}, {1}});
}

TEST_CASE("the assignment equals c10d's on random models") {
  // c10d's function is the oracle. It orders incomplete buckets by a hash
  // table, so these are compared as sets.
  const std::vector<std::vector<int64_t>> all_limits{
      {400}, {40, 80}, {200, 400}, {100, 700}};
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const auto& limits = all_limits[trial % all_limits.size()];
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 1 + static_cast<int>(random() % 30); ++i) {
      const auto count = static_cast<int64_t>(random() % 200);
      tensors.push_back(random() % 3 ? floats(count) : doubles(count));
    }
    // Also sizes that reach a limit exactly.
    tensors.insert(tensors.end(), {floats(10), floats(100), doubles(25)});
    auto expected = std::get<0>(c10d::compute_bucket_assignment_by_size(
        tensors, std::vector<size_t>(limits.begin(), limits.end())));
    std::sort(expected.begin(), expected.end());
    std::vector<size_t> order(tensors.size()); // that of registration
    std::iota(order.begin(), order.end(), size_t{0});
    auto buckets = assign_buckets(tensors, limits, order);
    std::sort(buckets.begin(), buckets.end()); // by their first index
    REQUIRE(buckets == expected);
  }
}

} // namespace ddp::test::bucket_assignment_test
