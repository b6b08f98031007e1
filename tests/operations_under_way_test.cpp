// Many concurrent operations of a group, with barriers in between.
#include <tests/support/ranks.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::test::operations_under_way_test {

using std::chrono::seconds;

const auto kGloo = ProcessGroupOptions().backend("gloo");
const auto kShm = ProcessGroupOptions().backend("shm");

/// Sums and broadcasts of small tensors, waited for in a different order on
/// each rank.
void check_many(const ProcessGroup& group) {
  constexpr int64_t kCount = 1000;
  const auto size = group.size();
  std::vector<torch::Tensor> tensors;
  std::vector<Work> works;
  for (int64_t i = 0; i < kCount; ++i) {
    tensors.push_back(torch::full({i % 7 + 1}, 1. * (i + group.rank())));
    works.push_back(
        i % 3 == 0 ? group.broadcast_async(tensors.back(), i % size)
                   : group.all_reduce_async(tensors.back()));
  }
  std::vector<size_t> order(kCount);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(static_cast<unsigned>(group.rank()));
  std::shuffle(order.begin(), order.end(), random);
  for (const auto i : order) {
    works[i].wait();
  }
  for (int64_t i = 0; i < kCount; ++i) {
    INFO(i);
    const auto expected =
        i % 3 == 0 ? i + i % size : size * i + size * (size - 1) / 2;
    REQUIRE(tensors[i].eq(expected).all().item<bool>());
  }
}

/// Barriers, and collectives that wait immediately, among started operations.
void check_barriers(const ProcessGroup& group) {
  std::vector<torch::Tensor> sums;
  std::vector<Work> works;
  for (int64_t i = 0; i < 6; ++i) {
    sums.push_back(torch::full({1 << 18}, 1. + i));
    works.push_back(group.all_reduce_async(sums.back()));
    if (i % 2) {
      group.barrier();
    } else {
      const auto all = group.all_gather(std::to_string(group.rank()));
      REQUIRE(all.back() == std::to_string(group.size() - 1));
    }
  }
  for (auto& work : works) {
    work.wait();
  }
  for (int64_t i = 0; i < 6; ++i) {
    REQUIRE(sums[i].eq(group.size() * (1 + i)).all().item<bool>());
  }
}

/// Of four ranks, the first two pass their barrier before the others enter
/// theirs.
void check_parts(const ProcessGroup& group) {
  const auto part = group.split(group.rank() / 2);
  const auto store = group.store();
  const std::string passed = "passed/0", came = "came/";
  if (group.rank() > 1) {
    store->wait({passed}, seconds(40));
  }
  if (part.rank() == 1) { // the other one waits for it
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    store->set(came + std::to_string(group.rank()), std::string("1"));
  }
  part.barrier();
  REQUIRE(store->check({came + std::to_string(group.rank() / 2 * 2 + 1)}));
  if (group.rank() == 0) {
    REQUIRE(!store->check({came + "3"}));
    store->set(passed, std::string("1"));
  }
  group.barrier();
}

RANKS_TEST("a thousand operations over gloo are under way", {3, 4}, kGloo) {
  check_many(group);
}

RANKS_TEST(
    "a thousand operations over shared memory are under way",
    {3, 4},
    kShm) {
  check_many(group);
}

RANKS_TEST("operations over gloo are under way across a barrier", 3, kGloo) {
  check_barriers(group);
}

RANKS_TEST(
    "operations over shared memory are under way across a barrier",
    3,
    kShm) {
  check_barriers(group);
}

RANKS_TEST("over gloo a part's barrier waits for the part alone", 4, kGloo) {
  check_parts(group);
}

RANKS_TEST(
    "over shared memory a part's barrier waits for the part alone",
    4,
    kShm) {
  check_parts(group);
}

} // namespace ddp::test::operations_under_way_test
