// Parameters and buffers that are local to ranks, with different shapes.
#include <tests/support/either_way.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

namespace ddp::test::ignored_parameters_test {

/// A layer that all ranks have, and one whose size depends on the rank.
struct OwnPartNet : LayeredNet {
  torch::nn::Linear shared = linear("shared", 4, 3);
  torch::nn::Linear own;
  torch::Tensor count;

  explicit OwnPartNet(int64_t size)
      : own(linear("own", 3, size)),
        count(register_buffer("count", torch::full({size}, 1. * size))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return own(torch::relu(shared(x))).pow(2).sum();
  }
};

ReducerOptions keep_own_part() {
  return ReducerOptions().parameters_to_ignore(
      {"own.weight", "own.bias", "count"});
}

/// A step of `net`, whose shared layer gets the mean of the ranks' gradients.
void check_step(
    const ProcessGroup& group,
    EitherWay<OwnPartNet>& trained,
    OwnPartNet& net,
    int64_t step) {
  OwnPartNet local(net.own->bias.numel());
  copy_parameters(net, local);
  const auto input = batch(group, step, 4);
  reset_gradients(net);
  trained.forward(input).backward();
  local.forward(input).backward();
  for (const auto& parameter : local.named_parameters()) {
    INFO(parameter.key());
    auto expected = parameter.value().grad().clone();
    if (parameter.key().rfind("own.", 0) != 0) {
      group.all_reduce(expected, ReduceOp::kMean);
    }
    REQUIRE(
        nearly_equal(net.named_parameters()[parameter.key()].grad(), expected));
  }
}

RANKS_TEST("what is ignored may have other shapes on each rank") {
  for (const bool wrapped : {false, true}) {
    torch::manual_seed(group.rank());
    const auto size = group.rank() + 1;
    const auto net = std::make_shared<OwnPartNet>(size);
    const auto own = net->own->weight.detach().clone();
    EitherWay<OwnPartNet> trained(net, group, wrapped, keep_own_part());
    REQUIRE(equal_on_all(group, net->shared->weight));
    REQUIRE(net->own->weight.equal(own));
    for (int64_t step = 0; step < 3; ++step) {
      check_step(group, trained, *net, step);
      REQUIRE(net->count.equal(torch::full({size}, 1. * size)));
    }
  }
}

RANKS_TEST("a module that is ignored may be replaced later") {
  for (const bool wrapped : {false, true}) {
    const auto net = std::make_shared<OwnPartNet>(group.rank() + 1);
    EitherWay<OwnPartNet> trained(net, group, wrapped, keep_own_part());
    check_step(group, trained, *net, 0);
    net->own = net->replace_module(
        "own", torch::nn::Linear(3, 2 * group.size() - group.rank()));
    for (int64_t step = 1; step < 4; ++step) {
      check_step(group, trained, *net, step);
    }
  }
}

RANKS_TEST("a Reducer's parameters are those that it manages") {
  const auto net = std::make_shared<OwnPartNet>(2);
  Reducer reducer(net, group, keep_own_part());
  const auto parameters = reducer.parameters();
  REQUIRE(parameters.size() == 2);
  REQUIRE(parameters[0].is_same(net->shared->weight));
  REQUIRE(parameters[1].is_same(net->shared->bias));
  net->shared->bias.set_requires_grad(false); // the Reducer still has it
  REQUIRE(reducer.parameters().size() == 2);
}

} // namespace ddp::test::ignored_parameters_test
