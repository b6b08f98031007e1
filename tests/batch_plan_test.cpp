#include <ddp/ddp.h>
#include <tests/support/catch.h>

namespace ddp::test::batch_plan_test {

TEST_CASE("batch sizes that are left open follow from the others") {
  using Options = BatchPlanOptions;
  struct Case {
    Options options;
    int64_t ranks, global, rank, steps;
  };
  for (const auto& c : std::vector<Case>{
           {Options().global_batch(256), 4, 256, 64, 1},
           {Options().rank_batch(32), 3, 96, 32, 1},
           {Options().global_batch(256).rank_batch(16), 4, 256, 16, 4},
           {Options().global_batch(240).accumulation_steps(5), 3, 240, 16, 5},
           {Options().rank_batch(8).accumulation_steps(2), 3, 48, 8, 2},
           {Options().rank_batch(8).accumulation_steps(2).global_batch(48),
            3,
            48,
            8,
            2}}) {
    const auto plan = plan_batches(c.options, c.ranks);
    CAPTURE(c.ranks, c.global);
    CHECK(plan.global_batch == c.global);
    CHECK(plan.rank_batch == c.rank);
    CHECK(plan.accumulation_steps == c.steps);
  }
  const auto alone = plan_batches(Options().rank_batch(8), ProcessGroup());
  CHECK(alone.global_batch == 8);
}

TEST_CASE("batch sizes that do not agree are refused with those that would") {
  REQUIRE_THROWS_WITH(
      plan_batches(BatchPlanOptions().global_batch(100), 3),
      Has("use 99 or 102"));
  REQUIRE_THROWS_WITH(
      plan_batches(BatchPlanOptions().global_batch(100).rank_batch(16), 3),
      Has("3 ranks x 16 samples = 48", "use 96 or 144"));
  REQUIRE_THROWS_WITH(
      plan_batches(BatchPlanOptions().global_batch(2), 3), Has("; use 3"));
  REQUIRE_THROWS_WITH(
      plan_batches(
          BatchPlanOptions().global_batch(50).rank_batch(8).accumulation_steps(
              2),
          3),
      Has("global_batch is 50", "steps = 48: use 48, or leave"));
  REQUIRE_THROWS_AS(plan_batches(BatchPlanOptions(), 3), c10::ValueError);
  REQUIRE_THROWS_AS(
      plan_batches(BatchPlanOptions().rank_batch(0), 3), c10::ValueError);
  REQUIRE_THROWS_AS(
      plan_batches(BatchPlanOptions().rank_batch(8), 0), c10::ValueError);
}

TEST_CASE("the learning rate follows the global batch where that is asked") {
  const auto options = BatchPlanOptions().rank_batch(64).reference_batch(64);
  REQUIRE(plan_batches(options, 4).learning_rate_scale == 4);
  REQUIRE(
      plan_batches(
          BatchPlanOptions(options).scaling(LearningRateScaling::kSquareRoot),
          4)
          .learning_rate_scale == 2);
  REQUIRE(
      plan_batches(
          BatchPlanOptions(options).scaling(LearningRateScaling::kNone), 4)
          .learning_rate_scale == 1);
  REQUIRE(
      plan_batches(BatchPlanOptions().rank_batch(64), 4).learning_rate_scale ==
      1);
}

} // namespace ddp::test::batch_plan_test
