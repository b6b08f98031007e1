#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::step_check_test {

RANKS_TEST("check_divergence_every finds parameters that went apart", 4) {
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
      Has("the parameters differ between ranks: left.bias",
          "on rank 2",
          "ranks 0, 1 and 3"));
}

RANKS_TEST("check_finite names the rank and the parameter, on all ranks") {
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
        Has("the gradients are not finite on rank 1", "stem.weight"));
  }
}

RANKS_TEST("an overflow of the sum is not this rank's NaN") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group, ReducerOptions().check_finite(true));
  (weight * 3e38f).sum().backward(); // each finite, and so is the mean
  REQUIRE(weight.grad().isfinite().all().item<bool>());
}

} // namespace ddp::test::step_check_test
