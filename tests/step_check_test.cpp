#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::step_check_test {

TEST_CASE("check_divergence_every finds parameters that went apart") {
  ranks(4, [](ProcessGroup group) {
    auto net = std::make_shared<BranchNet>();
    Reducer reducer(net, group, ReducerOptions().check_divergence_every(3));
    const auto step = [&](int number) {
      net->forward(batch(group, number, 4), true).sum().backward();
    };
    step(1);
    step(2);
    step(3);
    if (group.rank() == 2) {
      const torch::NoGradGuard no_grad;
      net->left->bias[1] += 1e-3;
    }
    step(4);
    step(5);
    REQUIRE_THROWS_WITH(
        step(6),
        ContainsSubstring("the parameters differ between ranks: left.bias") &&
            ContainsSubstring("on rank 2") &&
            ContainsSubstring("ranks 0, 1 and 3"));
  });
}

TEST_CASE("check_finite names the rank and the parameter, on all ranks") {
  ranks(3, [](ProcessGroup group) {
    for (const double bad : {std::nan(""), double(INFINITY)}) {
      auto net = std::make_shared<BranchNet>();
      Reducer reducer(net, group, ReducerOptions().check_finite(true));
      for (int step = 0; step < 2; ++step) {
        net->forward(batch(group, step, 4), true).sum().backward();
      }
      auto input = batch(group, 2, 4);
      if (group.rank() == 1) {
        input[0][0] = bad;
      }
      REQUIRE_THROWS_WITH(
          net->forward(input, true).sum().backward(),
          ContainsSubstring("the gradients are not finite on rank 1") &&
              ContainsSubstring("stem.weight"));
    }
  });
}

TEST_CASE("an overflow of the sum is not this rank's NaN") {
  ranks(3, [](ProcessGroup group) {
    auto weight = torch::ones({2}, torch::requires_grad());
    Reducer reducer({weight}, group, ReducerOptions().check_finite(true));
    (weight * 3e38f).sum().backward(); // each finite, and so is the mean
    REQUIRE(weight.grad().isfinite().all().item<bool>());
  });
}

} // namespace ddp::test::step_check_test
