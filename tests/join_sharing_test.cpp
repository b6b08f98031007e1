// A join of Reducers that share a backward, or whose ends communicate.
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/shared_folder.h>

#include <ddp/join.h>
#include <ddp/reducer.h>

namespace ddp::test::join_sharing_test {

RANKS_TEST("Reducers that share a backward share a join") {
  torch::manual_seed(1);
  torch::nn::Linear lower(4, 4);
  torch::nn::Linear upper(4, 4);
  Reducer first(lower, group);
  Reducer second(upper, group);
  Join join(group, {first.joinable(), second.joinable()});
  for (int64_t i = 0; i < 1 + group.rank(); ++i) {
    lower->zero_grad();
    upper->zero_grad();
    // The lower net is used on both sides of the upper one.
    const auto x = torch::ones({1, 4});
    lower(upper(lower(x))).sum().backward();
  }
  join.finish();
  for (const auto& grad : {lower->weight.grad(), upper->weight.grad()}) {
    REQUIRE(equal_on_all(group, grad));
  }
  REQUIRE(group.rank() + lower->weight.grad().abs().sum().item<float>() > 0);
}

const auto kShortWait = RankOptions().environment({{"DDP_TIMEOUT", "15"}});

TEST_CASE("Reducers whose ends communicate share a backward and a join") {
  const SharedFolder folder;
  ranks(3, kShortWait, [path = folder.path] {
    const auto group = init_process_group();
    const ReducerOptions plain;
    const auto measured =
        ReducerOptions().bucket_layout(BucketLayout::kMeasured);
    const auto timed =
        ReducerOptions().timeline_folder(path).timeline_steps("2-4");
    const auto checked = ReducerOptions().check_divergence_every(1);
    const std::vector<std::pair<ReducerOptions, ReducerOptions>> all{
        {measured, measured},
        {timed, timed},
        {checked, measured},
        {plain, timed}};
    for (const auto& [of_lower, of_upper] : all) {
      torch::manual_seed(1);
      torch::nn::Linear lower(4, 4);
      torch::nn::Linear upper(4, 4);
      Reducer first(lower, group, of_lower);
      Reducer second(upper, group, of_upper);
      Join join(group, {first.joinable(), second.joinable()});
      for (int64_t step = 0; step < 1 + 10 * group.rank(); ++step) {
        lower->zero_grad();
        upper->zero_grad();
        lower(upper(lower(torch::ones({1, 4})))).sum().backward();
        REQUIRE(lower->weight.grad().defined());
      }
      join.finish();
      for (const auto& grad : {lower->weight.grad(), upper->weight.grad()}) {
        REQUIRE(equal_on_all(group, grad));
      }
    }
  });
}

RANKS_TEST(
    "Reducers that share a join tell a rank without inputs of NaN",
    3,
    {},
    kShortWait) {
  torch::nn::Linear lower(4, 4);
  torch::nn::Linear upper(4, 4);
  const auto checked = ReducerOptions().check_finite(true);
  Reducer first(lower, group, checked);
  Reducer second(upper, group, checked);
  const auto error = words_of<c10::ValueError>([&] {
    Join join(group, {first.joinable(), second.joinable()});
    if (group.rank() > 0) {
      const auto x = torch::full({1, 4}, group.rank() == 2 ? NAN : 1.0F);
      lower(upper(lower(x))).sum().backward();
    }
  });
  REQUIRE_THAT(error, Catch::Contains("rank 2"));
}

} // namespace ddp::test::join_sharing_test
