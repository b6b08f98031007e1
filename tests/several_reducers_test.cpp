#include <tests/support/hook_training.h>
#include <tests/support/ranks.h>

namespace ddp::test::several_reducers_test {

RANKS_TEST("Reducers that share a backward do not wait for each other", 2) {
  std::vector<at::Tensor> a, b;
  for (int i = 0; i < 2; ++i) {
    a.push_back(torch::ones({3}, torch::requires_grad()));
    b.push_back(torch::ones({3}, torch::requires_grad()));
  }
  Reducer first(a, group);
  Reducer second(b, group);
  for (int step = 0; step < 3; ++step) {
    // Ranks reach the two in different orders; half of each is unused.
    const auto loss = group.rank() == 0 ? (a[0] * (b[0] * 2)).sum()
                                        : ((a[0] * 2) * b[0]).sum();
    loss.backward();
  }
  REQUIRE(a[0].grad().defined());
  REQUIRE(!a[1].grad().defined());
}

RANKS_TEST("Reducers that share a backward may compress gradients", 2) {
  check_compression_together(group);
}

RANKS_TEST("a net that gradients only pass through stays out of it") {
  torch::nn::Linear generator(3, 4), critic(4, 1);
  Reducer generates(generator, group), criticises(critic, group);
  for (int step = 0; step < 3; ++step) {
    const auto input = batch(group, step, 3);
    generator->zero_grad();
    critic->zero_grad();
    critic->forward(generator->forward(input).detach()).sum().backward();
    REQUIRE(!generator->weight.grad().defined());
    REQUIRE(equal_on_all(group, critic->weight.grad()));
    const auto before = critic->weight.grad().clone();
    if (step % 2 == 0) { // one way
      set_requires_grad(*critic, false);
      critic->forward(generator->forward(input)).sum().backward();
      set_requires_grad(*critic, true);
      REQUIRE(critic->weight.grad().equal(before));
    } else { // the other
      const auto guard = criticises.no_sync();
      critic->forward(generator->forward(input)).sum().backward();
      REQUIRE(!equal_on_all(group, critic->weight.grad()));
    }
    REQUIRE(equal_on_all(group, generator->weight.grad()));
  }
}

RANKS_TEST("a wrapped net that is frozen stays out of it") {
  using Wrapper = DistributedDataParallel<torch::nn::Linear>;
  torch::nn::Linear generator(3, 4), critic(4, 1);
  Wrapper generates(generator, group), criticises(critic, group);
  torch::optim::SGD optimizer(critic->parameters(), 0.1);
  criticises->step_in_backward(optimizer);
  for (int step = 1; step <= 4; ++step) {
    const auto input = batch(group, step, 3);
    set_requires_grad(*generator, false);
    const auto fake = generates->forward(input);
    REQUIRE(!fake.requires_grad());
    criticises->forward(fake).sum().backward();
    set_requires_grad(*generator, true);
    const auto before = critic->weight.detach().clone();
    set_requires_grad(*critic, false);
    criticises->forward(generates->forward(input)).sum().backward();
    set_requires_grad(*critic, true);
    REQUIRE(critic->weight.equal(before));
    REQUIRE(criticises->reducer().statistics().iteration == step);
    REQUIRE(generates->reducer().statistics().iteration == step);
    REQUIRE(equal_on_all(group, generator->weight.grad()));
  }
}

RANKS_TEST("layers that a wrapped net gets while it is frozen are reported") {
  torch::nn::Sequential net(torch::nn::Linear(3, 4));
  DistributedDataParallel<torch::nn::Sequential> model(net, group);
  set_requires_grad(*net, false);
  net->push_back(torch::nn::Linear(4, 1));
  const auto texts = warnings_of([&] {
    for (int step = 1; step <= 5; ++step) {
      model->forward(batch(group, step, 3)).sum().backward();
    }
  });
  REQUIRE(texts.size() == 1);
  REQUIRE_THAT(texts[0], Has("belong to no Reducer", "1.weight, 1.bias"));
  REQUIRE(model->reducer().statistics().iteration == 0); // it stays out
}

/// A loss that reaches two nets in an order that differs between ranks.
torch::Tensor joint_loss(
    const ProcessGroup& group,
    BranchNet& first,
    BranchNet& second) {
  const auto input = batch(group, 1, 4);
  const auto of = [&](BranchNet& net) {
    return net.forward(input, true).sum();
  };
  if (group.rank() % 2 == 0) {
    const auto loss = of(first);
    return loss + of(second);
  }
  const auto loss = of(second);
  return loss + of(first);
}

/// Two nets with a Reducer each, whose ranks wait for each other when
/// parameters are unfrozen.
struct Unfreezing {
  Unfreezing(
      const ProcessGroup& first,
      const ProcessGroup& second,
      const ReducerOptions& options = {})
      : of_a(a, first, options), of_b(b, second, options) {}

  void train(const ProcessGroup& group) {
    joint_loss(group, *a, *b).backward();
    a->left->weight.set_requires_grad(true);
    b->left->weight.set_requires_grad(true);
    joint_loss(group, *a, *b).backward();
    REQUIRE(equal_on_all(group, a->left->weight.grad()));
    REQUIRE(equal_on_all(group, b->left->weight.grad()));
  }

  static std::shared_ptr<BranchNet> make_net() {
    auto net = std::make_shared<BranchNet>();
    net->left->weight.set_requires_grad(false);
    return net;
  }

  std::shared_ptr<BranchNet> a = make_net();
  std::shared_ptr<BranchNet> b = make_net();
  Reducer of_a, of_b;
};

RANKS_TEST("Reducers that share a backward compare in the same order") {
  Unfreezing both(group, group, ReducerOptions().check_finite(true));
  both.train(group);
  // Ranks also wait if a check has failed in both.
  REQUIRE_THROWS_WITH(
      (joint_loss(group, *both.a, *both.b) * NAN).backward(),
      Has("not finite on ranks 0-2"));
}

RANKS_TEST("Reducers on groups that were handed over compare in one order") {
  const auto handed_over = [&] {
    return ProcessGroup::from_c10d(group.duplicate().c10d(), torch::kCPU);
  };
  const auto first = handed_over(), second = handed_over();
  Unfreezing(first, second).train(group);
}

} // namespace ddp::test::several_reducers_test
