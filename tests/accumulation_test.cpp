#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::accumulation_test {

RANKS_TEST("no_sync ends with its scope, also by an exception") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group);
  try {
    const auto outer = reducer.no_sync();
    { const auto inner = reducer.no_sync(); }
    REQUIRE(!reducer.synchronizes());
    throw std::runtime_error("on purpose");
  } catch (const std::runtime_error&) {
  }
  REQUIRE(reducer.synchronizes());
  (weight * group.rank()).sum().backward();
  REQUIRE(weight.grad().eq(1).all().item<bool>());
}

RANKS_TEST("with create_graph the mean can be differentiated") {
  // loss_r = x_r w^3, so the mean gradient is g = 3 m w^2 with m the mean of
  // x_r, and d(g^2)/dw = 2 g * 6 m w.
  auto w = torch::full({2}, 2.0, torch::kDouble).requires_grad_();
  Reducer reducer({w}, group);
  const double m = 2; // of 1, 2, 3
  for (int step = 0; step < 4; ++step) {
    w.mutable_grad().reset();
    const double x = 1.0 + static_cast<double>(group.rank());
    (w.pow(3) * x).sum().backward({}, std::nullopt, /*create_graph=*/true);
    auto g = w.grad();
    REQUIRE(nearly_equal(g.detach(), torch::full_like(g, 12.0 * m)));
    REQUIRE(g.requires_grad());
    w.mutable_grad().reset();
    g.pow(2).sum().backward();
    REQUIRE(nearly_equal(w.grad(), torch::full_like(w, 2 * 12 * m * 12 * m)));
  }
}

RANKS_TEST("what was dropped while gradients accumulated is as if never used") {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group);
  for (int step = 0; step < 3; ++step) {
    {
      const auto guard = reducer.no_sync();
      net->forward(batch(group, step, 4), false).sum().backward();
    }
    net->zero_grad(); // to none
    net->forward(batch(group, step, 4), true).sum().backward();
    REQUIRE(!net->right->weight.grad().defined());
    REQUIRE(equal_on_all(group, net->left->weight.grad()));
  }
}

} // namespace ddp::test::accumulation_test
