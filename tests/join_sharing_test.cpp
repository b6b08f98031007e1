// A join of Reducers that share a backward, or whose ends communicate.
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/join.h>
#include <ddp/random.h>
#include <ddp/reducer.h>

namespace ddp::test::join_sharing_test {

/// Two nets with a Reducer each, of which the lower one is used on both sides
/// of the upper one.
struct Stacked {
  explicit Stacked(
      const ProcessGroup& its_group,
      const ReducerOptions& of_lower = {},
      const ReducerOptions& of_upper = {})
      : group(its_group),
        first(lower, group, of_lower),
        second(upper, group, of_upper) {}

  Join join() {
    return Join(group, {first.joinable(), second.joinable()});
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

RANKS_TEST("Reducers that share a backward share a join") {
  Stacked nets(group);
  auto join = nets.join();
  for (int64_t i = 0; i < 1 + group.rank(); ++i) {
    nets.backward(torch::ones({1, 4}));
  }
  join.finish();
  nets.check();
  const auto sum = nets.lower->weight.grad().abs().sum().item<float>();
  REQUIRE(group.rank() + sum > 0);
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
    Stacked nets(group, of_lower, of_upper);
    auto join = nets.join();
    for (int64_t step = 0; step < 1 + 10 * group.rank(); ++step) {
      nets.backward(torch::ones({1, 4}));
      REQUIRE(nets.lower->weight.grad().defined());
    }
    join.finish();
    nets.check();
  }
}

RANKS_TEST(
    "Reducers that share a join tell a rank without inputs of NaN",
    3,
    {},
    kShortWait) {
  const auto checked = ReducerOptions().check_finite(true);
  Stacked nets(group, checked, checked);
  const auto error = words_of<c10::ValueError>([&] {
    auto join = nets.join();
    if (group.rank() > 0) {
      nets.backward(torch::full({1, 4}, group.rank() == 2 ? NAN : 1.0F));
    }
  });
  REQUIRE_THAT(error, Has("rank 2"));
}

} // namespace ddp::test::join_sharing_test
