#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::reducer_test {

RANKS_TEST("a parameter registered twice is reduced once") {
  auto linear = torch::nn::Linear(3, 3);
  torch::nn::Sequential net(linear, linear);
  Reducer reducer(net, group);
  REQUIRE(reducer.buckets()[0].size() == 2);
  net->forward(torch::ones({1, 3})).sum().backward();
  auto sum = linear->weight.grad().clone();
  group.all_reduce(sum, ReduceOp::kMean);
  REQUIRE(nearly_equal(sum, linear->weight.grad()));
}

RANKS_TEST("construction gives every rank rank 0's values") {
  torch::manual_seed(group.rank());
  auto net = std::make_shared<UnevenNet>();
  net->wide->weight.set_requires_grad(false); // frozen ones too
  net->register_buffer("count", torch::full({2}, group.rank()));
  Reducer reducer(net, group);
  torch::manual_seed(0);
  REQUIRE(same_parameters(*net, UnevenNet()));
  REQUIRE(net->named_buffers()["count"].eq(0).all().item<bool>());
}

TEST_CASE("a model without trainable parameters is refused") {
  const ProcessGroup alone;
  auto frozen = std::make_shared<UnevenNet>();
  set_requires_grad(*frozen, false);
  REQUIRE_THROWS_WITH(
      Reducer(frozen, alone), Has("no parameter requires a gradient"));
  REQUIRE_THROWS_WITH(Reducer({torch::ones({2})}, alone), Has("parameter 0"));
  REQUIRE_THROWS_WITH(
      Reducer(
          std::make_shared<UnevenNet>(),
          alone,
          ReducerOptions().bucket_cap_mb(0)),
      Has("bucket_cap_mb"));
}

RANKS_TEST("a destroyed or moved Reducer is off its parameters") {
  auto net = std::make_shared<UnevenNet>();
  const auto mine = [&] {
    reset_gradients(*net);
    net->forward(torch::full({1, 7}, 1.0 * group.rank())).sum().backward();
    return net->first->weight.grad().clone();
  };
  {
    Reducer first(net, group);
    Reducer second(std::move(first));
    const auto averaged = mine();
    auto check = averaged.clone();
    group.all_reduce(check, ReduceOp::kMax);
    REQUIRE(check.equal(averaged));
  }
  const auto local = mine();
  REQUIRE((group.rank() > 0) == local.any().item<bool>());
}

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

} // namespace ddp::test::reducer_test
