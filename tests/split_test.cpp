#include <tests/support/backend_checks.h>
#include <tests/support/failures.h>
#include <tests/support/values.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::split_test {

RANKS_TEST("ranks of one color form a group, ordered by key and rank", 4) {
  const auto rank = group.rank();
  const auto parity = group.split(rank % 2);
  REQUIRE(parity.size() == 2);
  REQUIRE(parity.rank() == rank / 2);
  REQUIRE(parity.local_rank() == rank / 2);
  REQUIRE(parity.local_size() == 2);
  REQUIRE(parity.backend() == "gloo");
  REQUIRE(parity.timeout() == group.timeout());
  REQUIRE(sum_of_ranks(parity, group) == (rank % 2 ? 4 : 2));
  const auto reversed = group.split(7, -rank);
  REQUIRE(reversed.size() == 4);
  REQUIRE(reversed.rank() == 3 - rank);
  REQUIRE(reversed.broadcast(std::to_string(rank)) == "3");
  // By key, then by rank: 1, 3, 0, 2.
  const auto mixed = group.split(0, rank % 2 ? -5 : 1LL << 40);
  REQUIRE(
      mixed.all_gather(std::to_string(rank)) ==
      std::vector<std::string>{"1", "3", "0", "2"});
  REQUIRE(sum_of_ranks(group, group) == 6);
}

RANKS_TEST("a rank without a color, or alone with its, is a group of one") {
  const auto rank = group.rank();
  const auto some = group.split(rank == 1 ? -1 : 0);
  REQUIRE(some.size() == (rank == 1 ? 1 : 2));
  REQUIRE(some.rank() == (rank == 2 ? 1 : 0));
  REQUIRE(sum_of_ranks(some, group) == (rank == 1 ? 1 : 2));
  REQUIRE((some.store() == nullptr) == (rank == 1));
  const auto alone = group.split(rank, 3);
  REQUIRE(alone.size() == 1);
  REQUIRE(alone.backend() == "none");
  REQUIRE(sum_of_ranks(alone, group) == rank);
  const auto again = alone.split(5);
  REQUIRE(again.size() == 1);
}

RANKS_TEST("a color below -1 is an error on every rank") {
  REQUIRE_THROWS_WITH(
      group.split(group.rank() == 2 ? -2 : 0),
      Has("split: color -2 of rank 2"));
  REQUIRE(group.split(0).size() == 3); // the group still works
}

RANKS_TEST("parts are split and duplicated like the whole", 4) {
  const auto rank = group.rank();
  const auto three = group.split(rank == 0 ? -1 : 1);
  REQUIRE(three.size() == (rank == 0 ? 1 : 3));
  if (rank != 0) {
    const auto copy = three.duplicate();
    REQUIRE(sum_of_ranks(copy, group) == 6);
    const auto two = copy.split(rank == 2 ? 3 : 4, -rank);
    REQUIRE(two.size() == (rank == 2 ? 1 : 2));
    REQUIRE(two.rank() == (rank == 1 ? 1 : 0));
    REQUIRE(sum_of_ranks(two, group) == (rank == 2 ? 2 : 4));
    // Parts do not share keys.
    if (rank == 1) {
      two.store()->set("key", "two");
    }
    three.barrier();
    REQUIRE(!three.store()->check({"key"}));
  }
  group.barrier(); // rank 0 serves the store of all parts
}

TEST_CASE("parts reduce to one rank and sum sparse tensors as the whole does") {
  for (const char* backend : {"gloo", "shm"}) {
    ranks(4, [backend] {
      const auto group =
          init_process_group(ProcessGroupOptions().backend(backend));
      const auto rank = group.rank();
      for (const auto& part :
           {group.split(rank == 1 ? -1 : 0), group.split(0, -rank)}) {
        if (part.size() > 1) {
          const auto own = part.c10d()->getBackend(c10::kCPU);
          check_reduce(own, {Kind::SUM, Kind::MIN, Kind::MAX});
          check_sparse_rows(own);
        }
      }
      group.barrier(); // rank 0 serves the store of all parts
    });
  }
}

RANKS_TEST("halves train apart, each with a Reducer of its own", 4) {
  const auto half = group.split(group.rank() / 2);
  torch::manual_seed(1);
  torch::nn::Linear net(3, 2);
  torch::nn::Linear other(2, 2);
  // The halves make different steps: a common group would hang.
  const int steps = group.rank() < 2 ? 3 : 5;
  const Reducer reducer(net, half);
  const Reducer second(other, half);
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    const auto input = torch::full({1, 3}, 1.0 + group.rank());
    other->forward(net->forward(input)).sum().backward();
    const double mean = group.rank() < 2 ? 1.5 : 3.5;
    const auto expected = mean * other->weight.detach().sum(0).unsqueeze(1);
    REQUIRE(net->weight.grad().allclose(expected.expand({2, 3})));
  }
  REQUIRE(sum_of_ranks(group, group) == 6);
}

RANKS_TEST(
    "a failure ends its own part and leaves the other alone",
    4,
    kTimeout) {
  const auto rank = group.rank();
  const auto half = group.split(rank / 2, -rank);
  if (rank == 2) { // rank 1 of its half, which is 3, 2
    detail::report_failure(half, "had enough");
  } else if (rank == 3) {
    const auto start = Clock::now();
    REQUIRE_THAT(
        all_reduce_error(half),
        Has("rank 0 of 2 on host",
            "rank 1 of 2 on host",
            "failed: had enough"));
    REQUIRE(seconds_since(start) < 10);
  } else {
    REQUIRE(sum_of_ranks(half, group) == 1);
  }
  REQUIRE(sum_of_ranks(group, group) == 6);
}

RANKS_TEST(
    "the end of a rank outside a part is told there as of the whole",
    3,
    kTimeout,
    RankOptions().exit_codes({{2, 134}})) {
  const auto part = group.split(group.rank() == 2 ? -1 : 0);
  if (group.rank() == 2) {
    throw_uncaught();
  }
  if (group.rank() == 0) { // waits for rank 1, which waits for rank 2
    REQUIRE_THAT(
        all_reduce_error(part), Has("rank 2 of 3 on host", "boom in forward"));
  } else {
    REQUIRE_THAT(all_reduce_error(group), Has("boom in forward"));
  }
}

RANKS_TEST(
    "ranks that do not come are named by their place in the part",
    4,
    ProcessGroupOptions().timeout(std::chrono::seconds(5))) {
  const auto part = group.split(group.rank() == 0 ? -1 : 0);
  if (part.rank() == 1 && part.size() == 3) {
    const auto text = all_reduce_error(part);
    REQUIRE_THAT(
        text,
        Has("; ranks 0 and 2 have not reached",
            "; rank 1 waits in all_reduce of"));
  }
  meet_at_store(group, {"0", "1", "2", "3"});
}

RANKS_TEST("a group that the program has already is split on one host") {
  const auto handed = ProcessGroup::from_c10d(group.c10d());
  const auto part = handed.split(group.rank() == 1 ? -1 : 0, -group.rank());
  REQUIRE(part.size() == (group.rank() == 1 ? 1 : 2));
  if (part.size() == 2) {
    REQUIRE(part.rank() == (group.rank() == 2 ? 0 : 1));
    REQUIRE(sum_of_ranks(part, group) == 2);
    REQUIRE(sum_of_ranks(part.duplicate(), group) == 2);
  }
  const auto& impl = detail::ProcessGroupImpl::of(handed);
  const_cast<std::vector<std::string>&>(impl.hosts)[2] = "elsewhere";
  REQUIRE_THROWS_WITH(handed.split(0), Has("run on several hosts"));
}

} // namespace ddp::test::split_test
