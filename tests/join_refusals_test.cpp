// Arguments and calls that a join rejects.
#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

namespace ddp::test::join_refusals_test {

torch::Tensor loss_of(torch::nn::Linear& net) {
  return net->forward(torch::ones({1, 4})).sum();
}

/// Two nets with a Reducer each, the lower of which is used on both sides of
/// the upper one.
struct Two {
  explicit Two(
      const ProcessGroup& its_group,
      const ReducerOptions& of_lower = {},
      const ReducerOptions& of_upper = {})
      : group(its_group),
        first(lower, group, of_lower),
        second(upper, group, of_upper) {}

  Join::Joinables joinables() {
    return {first.joinable(), second.joinable()};
  }
  Join join() {
    return Join(group, joinables());
  }
  void backward(const torch::Tensor& input) {
    lower->zero_grad();
    upper->zero_grad();
    lower(upper(lower(input))).sum().backward();
  }
  void check() const {
    REQUIRE(equal_on_all(group, lower->weight.grad()));
    REQUIRE(equal_on_all(group, upper->weight.grad()));
  }

  ProcessGroup group;
  uint64_t seed = manual_seed(1, group);
  torch::nn::Linear lower{4, 4}, upper{4, 4};
  Reducer first, second;
};

RANKS_TEST("ranks that announce different things are told") {
  Two two(group);
  const auto error = words_of([&] {
    Join join(group, two.joinables());
    if (group.rank() == 1) {
      loss_of(two.upper).backward();
    } else if (group.rank() == 0) {
      loss_of(two.lower).backward();
    }
  });
  REQUIRE_THAT(
      error,
      Has("made different calls", "of joinable 0", "call 0 of joinable 1"));
}

RANKS_TEST("what a join cannot work with is refused") {
  torch::nn::Linear net(4, 4);
  Reducer reducer(
      net, group, ReducerOptions().skip_all_reduce_unused_params(true));
  REQUIRE_THROWS_WITH(reducer.join(), Has("skip_all_reduce_unused_params"));
  auto off = reducer.join(JoinOptions().enable(false));
  torch::nn::Linear other(4, 4);
  Reducer second(other, group);
  auto join = second.join();
  REQUIRE_THROWS_WITH(second.join(), Has("in another Join"));
}

RANKS_TEST("a list of joinables that cannot be is refused") {
  Two two(group);
  const auto rejected = [&](const Join::Joinables& list,
                            const std::string& reason) {
    const auto make = [&] { Join join(group, list); };
    REQUIRE_THROWS_WITH(make(), Has(reason));
  };
  rejected(
      {two.first.joinable(), two.first.joinable()}, "is in the list twice");
  rejected({}, "the list of joinables is empty");
  Join join(group, two.joinables()); // no rejected Join remains
}

TEST_CASE("lists of joinables of different lengths are told to all ranks") {
  for (const int64_t live : {0, 1, 3}) { // the number of ranks with inputs
    ranks(3, [live](ProcessGroup group) {
      Two two(group);
      const auto error = words_of<c10::ValueError>([&] {
        Join::Joinables list{two.first.joinable()};
        if (group.rank() != 1) {
          list.emplace_back(two.second.joinable());
        }
        Join join(group, list);
        if (group.rank() < live) {
          loss_of(two.lower).backward();
        }
      });
      REQUIRE_THAT(error, Has("rank 1 has 1, rank 0 has 2"));
    });
  }
}

RANKS_TEST("a second Join on a group is refused at once") {
  Two two(group); // each with a duplicate of the group
  torch::nn::Linear apart(4, 4);
  const auto part = group.split(0);
  Reducer third(apart, part);
  for (int i = 0; i < 2; ++i) {
    auto join = two.first.join();
    const std::string reason = "another Join exists on this group";
    REQUIRE_THROWS_WITH(two.second.join(), Has(reason));
    const auto make = [&] { Join nested(group, {two.second.joinable()}); };
    REQUIRE_THROWS_WITH(make(), Has(reason));
    auto off = two.second.join(JoinOptions().enable(false));
    auto of_part = third.join(); // another group
    of_part.finish();
    join.finish();
    auto next = two.second.join();
  }
}

// A join of Reducers that share a backward, or whose ends communicate.

RANKS_TEST("Reducers that share a backward share a join") {
  Two nets(group);
  auto join = nets.join();
  for (int64_t i = 0; i < 1 + group.rank(); ++i) {
    nets.backward(torch::ones({1, 4}));
  }
  join.finish();
  nets.backward(torch::ones({1, 4}));
  nets.check();
}

const auto kShortWait = RankOptions().environment({{"DDP_TIMEOUT", "15"}});

RANKS_TEST(
    "Reducers whose ends communicate share a backward and a join",
    3,
    {},
    kShortWait) {
  const ReducerOptions plain;
  const auto measured = ReducerOptions().bucket_layout(BucketLayout::kMeasured);
  const auto timed =
      ReducerOptions().timeline_folder(folder).timeline_steps("2-4");
  const auto checked = ReducerOptions().check_divergence_every(1);
  const std::vector<std::pair<ReducerOptions, ReducerOptions>> all{
      {measured, measured},
      {timed, timed},
      {checked, measured},
      {plain, timed}};
  for (const auto& [of_lower, of_upper] : all) {
    Two nets(group, of_lower, of_upper);
    auto join = nets.join();
    for (int64_t step = 0; step < 1 + 10 * group.rank(); ++step) {
      nets.backward(torch::ones({1, 4}));
      REQUIRE(nets.lower->weight.grad().defined());
    }
    join.finish();
    nets.backward(torch::ones({1, 4}));
    nets.check();
  }
}

RANKS_TEST(
    "Reducers whose hooks have groups share a backward and a join",
    3,
    {},
    kShortWait) {
  const auto make_hooks = [] {
    return Hooks{
        std::make_shared<QuantizationHook>(),
        std::make_shared<PowerSGDHook>(),
        std::make_shared<PostLocalSGDHook>(),
        chain_of({std::make_shared<QuantizationHook>()})};
  };
  const auto of_lower = make_hooks();
  const auto of_upper = make_hooks();
  for (size_t i = 0; i < of_lower.size(); ++i) {
    Two nets(group, with_hook(of_lower[i]), with_hook(of_upper[i]));
    auto join = nets.join();
    if (group.rank() != 1) {
      nets.backward(torch::ones({1, 4}));
    }
    join.finish();
    nets.backward(torch::ones({1, 4}));
    nets.check();
  }
}

RANKS_TEST(
    "Reducers share a backward and a join after a layer was unfrozen",
    3,
    {},
    kShortWait) {
  torch::nn::Linear lower(4, 4), upper(4, 4);
  lower->bias.set_requires_grad(false);
  Reducer first(lower, group), second(upper, group);
  lower->bias.set_requires_grad(true);
  const auto backward = [&] {
    lower(upper(lower(batch(group, 1, 4)))).sum().backward();
  };
  Join join(group, {first.joinable(), second.joinable()});
  if (group.rank() != 1) {
    backward();
  }
  join.finish();
  lower->zero_grad();
  backward();
  REQUIRE(equal_on_all(group, lower->bias.grad()));
}

RANKS_TEST(
    "Reducers that share a join tell a rank without inputs of NaN",
    3,
    {},
    kShortWait) {
  const auto checked = ReducerOptions().check_finite(true);
  Two nets(group, checked, checked);
  const auto error = words_of<c10::ValueError>([&] {
    auto join = nets.join();
    if (group.rank() > 0) {
      nets.backward(torch::full({1, 4}, group.rank() == 2 ? NAN : 1.0F));
    }
  });
  REQUIRE_THAT(error, Has("rank 2"));
}

} // namespace ddp::test::join_refusals_test
