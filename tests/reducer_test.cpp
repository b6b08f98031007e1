#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

namespace ddp::test::reducer_test {

RANKS_TEST("buckets are rebuilt in the order in which gradients come") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  using Buckets = std::vector<BucketIndices>;
  REQUIRE(reducer.buckets() == Buckets{{0, 1, 2, 3, 4, 5}});
  net->forward(batch(group, 0, 7)).sum().backward();
  // 1 MiB closes the first with the wide weight.
  REQUIRE(reducer.buckets() == Buckets{{5, 4, 3, 2}, {1, 0}});
}

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
  for (auto& parameter : frozen->parameters()) {
    parameter.set_requires_grad(false);
  }
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

} // namespace ddp::test::reducer_test
