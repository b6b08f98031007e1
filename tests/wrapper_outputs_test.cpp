#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <ddp/distributed_data_parallel.h>

namespace ddp::test::wrapper_outputs_test {

// Operations that a program may apply to the wrapper's outputs.

/// Returns a state that the next forward gets, without a gradient.
struct StatefulNet : LayeredNet {
  torch::nn::Linear layer = linear("layer", 4, 2);

  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& x,
      const torch::Tensor& state) {
    return {layer(x) * state, state + 1, torch::arange(3)};
  }
};

RANKS_TEST("outputs without a gradient are given to the next forward") {
  for (const auto& options : all_modes()) {
    auto net = std::make_shared<StatefulNet>();
    DistributedDataParallel<StatefulNet> model(net, group, options);
    auto state = torch::ones({1});
    for (int step = 1; step < 5; ++step) {
      reset_gradients(*net);
      const auto [output, next, integers] =
          model->forward(own(group, {1, 4}), state);
      REQUIRE(!next.requires_grad());
      REQUIRE(is(next, step + 1));
      REQUIRE(integers.equal(torch::arange(3)));
      output.sum().backward();
      REQUIRE(is(net->layer->weight.grad(), 2 * step));
      REQUIRE(is(net->layer->bias.grad(), step));
      state = next;
    }
  }
}

RANKS_TEST("outputs and losses may be changed in place") {
  for (const auto& options : all_modes()) {
    auto net = std::make_shared<Scale>();
    DistributedDataParallel<Scale> model(net, group, options);
    // With rank 0's part and, unless the graph is static, without it.
    for (const bool all : {true, options.static_graph()}) {
      reset_gradients(*net);
      auto loss = model->forward(own(group), all || group.rank() > 0).sum();
      loss.div_(10);
      loss.backward();
      REQUIRE(is(net->weight.grad(), all ? 0.2 : 0.5 / 3));
      reset_gradients(*net);
      auto output = model->forward(own(group), all || group.rank() > 0);
      output.mul_(3).add_(1);
      output.sum().backward();
      REQUIRE(is(net->weight.grad(), all ? 6 : 5));
    }
  }
}

struct Outputs {
  torch::Tensor first;
  std::optional<torch::Tensor> second;
  std::string name;
};

template <typename Visitor>
void visit_tensors(Outputs& outputs, Visitor&& visitor) {
  visitor(outputs.first);
  visitor(outputs.second);
}

struct StructNet : LayeredNet {
  torch::nn::Linear a = linear("a", 4, 2);
  torch::nn::Linear b = linear("b", 4, 2);

  Outputs forward(const torch::Tensor& x, bool both) {
    Outputs outputs{a(x), std::nullopt, both ? "both" : "one"};
    if (both) {
      outputs.second = b(x);
    }
    return outputs;
  }
};

RANKS_TEST("a struct of outputs is reduced, with a member that may be empty") {
  auto net = std::make_shared<StructNet>();
  DistributedDataParallel<StructNet> model(net, group);
  const auto step = [&](bool both) {
    reset_gradients(*net);
    const auto outputs = model->forward(own(group, {1, 4}), both);
    REQUIRE(outputs.name == (both ? "both" : "one"));
    REQUIRE(outputs.second.has_value() == both);
    auto loss = outputs.first.sum();
    if (both) {
      loss = loss + 3 * outputs.second->sum();
    }
    loss.backward();
    REQUIRE(is(net->a->weight.grad(), 2));
  };
  for (int i = 0; i < 3; ++i) {
    step(true);
    REQUIRE(is(net->b->weight.grad(), 6));
    step(group.rank() > 0); // 3 (2 + 3) / 3
    REQUIRE(is(net->b->weight.grad(), 5));
    step(false);
    REQUIRE(!net->b->weight.grad().defined());
  }
}

RANKS_TEST("a backward through one member of a struct is reduced") {
  auto net = std::make_shared<StructNet>();
  DistributedDataParallel<StructNet> model(net, group);
  for (int i = 0; i < 3; ++i) {
    reset_gradients(*net);
    model->forward(own(group, {1, 4}), true).second->sum().backward();
    REQUIRE(!net->a->weight.grad().defined());
    REQUIRE(is(net->b->weight.grad(), 2));
  }
}

} // namespace ddp::test::wrapper_outputs_test
