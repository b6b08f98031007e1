#include <tests/support/comm_hooks.h>
#include <tests/support/failures.h>
#include <tests/support/nets.h>

#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::test::unused_parameters_test {

RANKS_TEST("what no rank used keeps its gradient to the last bit") {
  // Three ranks: averaging it again would round it.
  for (const bool view : {false, true}) {
    auto net = std::make_shared<BranchNet>();
    Reducer reducer(net, group, ReducerOptions().gradient_as_bucket_view(view));
    const auto& unused = net->right->weight;
    for (int step = 0; step < 4; ++step) {
      net->forward(batch(group, step, 4), false).sum().backward();
      const auto before = unused.grad().clone();
      const auto object = unused.grad();
      net->forward(batch(group, step, 4), true).sum().backward();
      REQUIRE(unused.grad().equal(before));
      REQUIRE(unused.grad().is_same(object));
      REQUIRE(!net->never->weight.grad().defined());
    }
  }
}

RANKS_TEST("a gradient of zero is there, and keeps its sign") {
  auto weight = torch::ones({4}, torch::requires_grad());
  auto other = torch::ones({4}, torch::requires_grad());
  Reducer reducer({weight, other}, group);
  for (const double zero : {0.0, -0.0}) {
    for (const bool all_use_it : {false, true}) {
      weight.mutable_grad().reset();
      auto loss = other.sum();
      if (group.rank() == 0 || all_use_it) {
        loss = loss + (weight * torch::full({4}, zero)).sum();
      }
      loss.backward();
      REQUIRE(weight.grad().defined());
      REQUIRE(weight.grad().eq(0).all().item<bool>());
      // A missing gradient counts as plus zero.
      const bool minus = std::signbit(zero) && all_use_it;
      REQUIRE(torch::signbit(weight.grad()).eq(minus).all().item<bool>());
    }
  }
}

RANKS_TEST("agreeing on unused parameters leaves nothing in the store") {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group);
  const auto keys = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      net->forward(torch::ones({1, 4}), true).sum().backward();
    }
    group.barrier();
    const auto count = group.store()->getNumKeys();
    group.barrier();
    return count;
  };
  const auto before = keys(3);
  REQUIRE(keys(20) == before);
}

RANKS_TEST("skip_all_reduce_unused_params leaves out unused buckets") {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(
      net,
      group,
      ReducerOptions()
          .skip_all_reduce_unused_params(true)
          .bucket_cap_mb(1e-6)
          .record(true));
  for (int step = 0; step < 3; ++step) {
    net->forward(torch::ones({1, 4}), true).sum().backward();
    size_t reduced = 0;
    for (const auto& bucket : reducer.timeline().buckets) {
      reduced += bucket.launched ? 1 : 0;
    }
    REQUIRE(reduced == (step == 0 ? 1 : 4)); // of one, then of eight
    REQUIRE(!net->right->weight.grad().defined());
    REQUIRE(net->left->weight.grad().defined());
  }
}

TEST_CASE("ranks that leave out different buckets are told so") {
  for (const int alike : {0, 3}) { // steps in which all use the same
    for (const int other : {0, 2}) {
      ranks(3, [=](ProcessGroup group) {
        auto net = std::make_shared<BranchNet>();
        Reducer reducer(
            net,
            group,
            ReducerOptions().skip_all_reduce_unused_params(true).bucket_cap_mb(
                1e-6));
        const auto step = [&](bool left) {
          reset_gradients(*net);
          net->forward(torch::ones({1, 4}), left).sum().backward();
        };
        for (int i = 0; i < alike; ++i) {
          step(/*left=*/true);
        }
        const auto rest = [&] {
          step(/*left=*/group.rank() != other);
          step(/*left=*/group.rank() != other);
        };
        REQUIRE_THROWS_WITH(
            rest(),
            Has("skip_all_reduce_unused_params leaves out",
                "differ between ranks") &&
                (Has("left.weight") || Has("right.weight")));
        meet_at_store(group, {"0", "1", "2"});
      });
    }
  }
}

RANKS_TEST("what is left out cannot be compared without a store") {
  const auto c10d = group.c10d();
  const auto bare = c10::make_intrusive<c10d::ProcessGroup>(
      static_cast<int>(group.rank()), static_cast<int>(group.size()));
  bare->setBackend(
      at::kCPU, c10d->getBackendType(), c10d->getBackend(at::kCPU));
  bare->setDefaultBackend(c10d->getBackendType());
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(
      net,
      ProcessGroup::from_c10d(bare),
      ReducerOptions().skip_all_reduce_unused_params(true));
  REQUIRE_THROWS_WITH(
      net->forward(torch::ones({1, 4}), true).sum().backward(),
      Has("the group has no store"));
}

RANKS_TEST("a rank that leaves out nothing any more is told so") {
  auto first = torch::ones({2}, torch::requires_grad());
  auto second = torch::ones({2}, torch::requires_grad());
  Reducer reducer(
      {first, second},
      group,
      ReducerOptions().skip_all_reduce_unused_params(true).bucket_cap_mb(1e-6));
  const auto step = [&](bool both) {
    first.mutable_grad().reset();
    second.mutable_grad().reset();
    (both ? first + second : first).sum().backward();
  };
  for (int i = 0; i < 3; ++i) { // finally in separate buckets
    step(/*both=*/false);
  }
  const auto rest = [&] { // may throw in a later step only
    step(/*both=*/group.rank() == 1);
    step(/*both=*/group.rank() == 1);
    step(/*both=*/group.rank() == 1);
  };
  REQUIRE_THROWS_WITH(
      rest(),
      Has("skip_all_reduce_unused_params leaves out differ",
          "rank 1 has nothing"));
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("rank 0 may end after its last backward, with the store") {
  auto used = torch::ones({3}, torch::requires_grad());
  auto unused = torch::ones({3}, torch::requires_grad());
  const auto hook =
      custom([](const GradBucket& bucket, const ProcessGroup& own) {
        auto future = sum(bucket.buffer, own);
        if (own.rank() == 2) {
          future->wait();
          await_end_of_store(own);
        }
        return future;
      });
  Reducer reducer(
      {used, unused},
      group,
      // No message after the buckets.
      with_hook(hook).find_unused_parameters(true));
  (group.rank() == 0 ? used + unused : used).sum().backward();
  REQUIRE(unused.grad().equal(torch::ones({3})));
}

RANKS_TEST("finish_backward that comes late is refused on all ranks") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group);
  for (int step = 0; step < 3; ++step) {
    weight.sum().backward();
  }
  REQUIRE_THROWS_WITH(reducer.finish_backward(), Has("including the first"));
}

} // namespace ddp::test::unused_parameters_test
