// Ranks with different numbers of steps.
#include <tests/support/either_way.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <ddp/ddp.h>
#include <ddp/zero_redundancy_optimizer.h>

namespace ddp::test::join_test {

torch::Tensor loss_of(torch::nn::Linear& net, double value) {
  return net->forward(torch::full({1, 1}, value)).sum();
}

RANKS_TEST("a join ends with the parameters and buffers of the last rank", 4) {
  for (const bool wrapped : {true, false}) {
    auto net = std::make_shared<NormNet>(4, 6, 2);
    EitherWay<NormNet> model(net, group, wrapped);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    torch::Tensor own;
    {
      auto join = model.join();
      // Ranks 1 and 2 have equally many steps: 2 is chosen.
      const std::vector<int64_t> steps = {1, 4, 4, 0};
      for (int64_t i = 0; i < steps[static_cast<size_t>(group.rank())]; ++i) {
        optimizer.zero_grad();
        torch::manual_seed(10 * i + group.rank());
        const auto x = torch::randn({5, 4});
        model.forward(x).sum().backward();
        optimizer.step();
      }
      own = net->norm->running_mean.clone();
    }
    for (const auto& tensor : net->parameters()) {
      REQUIRE(equal_on_all(group, tensor.detach()));
    }
    for (const auto& tensor : net->buffers()) {
      REQUIRE(equal_on_all(group, tensor));
    }
    const auto all = group.all_gather(own);
    REQUIRE(net->norm->running_mean.equal(all[2]));
    // The next loop works.
    optimizer.zero_grad();
    const auto x = torch::randn({5, 4});
    model.forward(x).sum().backward();
    REQUIRE(equal_on_all(group, net->last->weight.grad()));
  }
}

RANKS_TEST("a forward after a join agrees on who sends buffers") {
  auto net = std::make_shared<NormNet>(4, 6, 2);
  DistributedDataParallel<NormNet> model(net, group);
  const auto x = torch::randn({5, 4});
  {
    const torch::NoGradGuard no_grad;
    model->forward(x); // no rank sends before the next forward
  }
  {
    auto join = model->join();
    if (group.rank() != 1) { // it keeps its state
      model->forward(x).sum().backward();
    }
  }
  net->norm->running_mean.fill_(group.rank());
  model->forward(x).sum().backward();
  REQUIRE(equal_on_all(group, net->last->weight.grad()));
}

RANKS_TEST("a rank without inputs in one join finishes passes in the next") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  for (const int64_t idle : {1, -1}) {
    auto join = reducer.join();
    for (int64_t i = 0; i < (group.rank() == idle ? 0 : 2); ++i) {
      net->zero_grad();
      loss_of(net, 1).backward();
      reducer.finish_backward();
      REQUIRE(is(net->weight.grad(), idle == 1 ? 2.0 / 3 : 1));
    }
  }
}

RANKS_TEST("means of a join's last steps enter no average of the next join") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto join = reducer.join();
    for (int64_t i = 0; i < (group.rank() == 2 ? 1 : 2); ++i) {
      loss_of(net, 1).backward();
      REQUIRE(is(net->weight.grad(), i == 0 ? 1 : 2.0 / 3));
      net->zero_grad(); // after the step
    }
  }
}

RANKS_TEST("early termination is thrown on all ranks, after the same steps") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  int64_t steps = 0;
  const auto error = words_of<EarlyTermination>([&] {
    auto join = reducer.join(JoinOptions().throw_on_early_termination(true));
    for (; steps < 2 + group.rank(); ++steps) {
      loss_of(net, 1).backward();
    }
  });
  REQUIRE(steps == 2);
  REQUIRE(
      error ==
      (group.rank() == 0
           ? "Rank 0 exhausted all inputs."
           : "Detected at least one rank that exhausted inputs. Throwing "
             "across all ranks."));
  net->zero_grad();
  loss_of(net, group.rank()).backward(); // is still usable
  REQUIRE(net->weight.grad().item<float>() == 1);
}

RANKS_TEST("early termination leaves no gradient of the step that it ends") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  const auto train = [&] {
    auto join = reducer.join(JoinOptions().throw_on_early_termination(true));
    for (int64_t i = 0; i < 1 + group.rank(); ++i) {
      loss_of(net, 1).backward();
      net->zero_grad(); // after the step
    }
  };
  REQUIRE_THROWS_AS(train(), EarlyTermination);
  REQUIRE_FALSE(net->weight.grad().defined());
  REQUIRE_FALSE(net->bias.grad().defined());
}

RANKS_TEST("the wrapper throws before a forward that communicates itself") {
  torch::nn::Sequential net(
      torch::nn::Linear(4, 6),
      SyncBatchNorm1d(torch::nn::BatchNormOptions(6), group.duplicate()));
  DistributedDataParallel<torch::nn::SequentialImpl> model(
      net.ptr(), group, ReducerOptions().broadcast_buffers(false));
  int64_t steps = 0;
  const auto train = [&] {
    auto join = model->join(JoinOptions().throw_on_early_termination(true));
    for (; steps < 4 - group.rank(); ++steps) {
      model->forward(torch::randn({5, 4})).sum().backward();
    }
  };
  REQUIRE_THROWS_AS(train(), EarlyTermination);
  REQUIRE(steps == 2);
}

TEST_CASE("communication hooks take part in a join") {
  for (const bool power_sgd : {false, true}) {
    ranks(3, [power_sgd](ProcessGroup group) {
      std::shared_ptr<CommHook> hook = fp16_compress_hook();
      if (power_sgd) {
        hook = std::make_shared<PowerSGDHook>(
            PowerSGDOptions().start_iteration(2));
      }
      torch::manual_seed(1);
      torch::nn::Linear net(16, 16);
      Reducer reducer(net, group, ReducerOptions().comm_hook(hook));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      reducer.step_in_backward(optimizer);
      auto join = reducer.join();
      for (int64_t step = 0; step < 3 + group.rank(); ++step) {
        optimizer.zero_grad();
        net->forward(torch::ones({1, 16})).sum().backward();
        if (!power_sgd) { // a hook's divisor is its own
          const auto live = static_cast<float>(step < 3 ? 3 : 5 - step);
          REQUIRE(net->bias.grad().allclose(
              torch::full({16}, live / 3), 1e-3, 1e-3));
        }
      }
      const auto own = net->weight.detach().clone();
      join.finish();
      REQUIRE(equal_on_all(group, net->weight.detach()));
      if (group.rank() == 2) { // it continued longest
        REQUIRE(own.equal(net->weight));
      }
    });
  }
}

RANKS_TEST("nobody throws where all inputs end in the same step") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  auto join = reducer.join(JoinOptions().throw_on_early_termination(true));
  loss_of(net, 1).backward();
}

RANKS_TEST("a join that is off costs and does nothing") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  auto join = reducer.join(JoinOptions().enable(false));
  auto second = reducer.join(JoinOptions().enable(false));
  loss_of(net, group.rank()).backward();
  REQUIRE(net->weight.grad().item<float>() == 1);
}

RANKS_TEST("an exception leaves a join as it is") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  try {
    auto join = reducer.join();
    loss_of(net, 1).backward();
    throw std::invalid_argument("the program's own");
  } catch (const std::invalid_argument& error) {
    REQUIRE(std::string(error.what()) == "the program's own");
  }
  auto join = reducer.join(); // the first one was left
  loss_of(net, 1).backward();
}

/// A collective of the program: the number of samples of all ranks.
class SampleCount : public Joinable {
 public:
  explicit SampleCount(ProcessGroup group) : group_(std::move(group)) {}

  void add(int64_t samples) {
    notify_join_context();
    sum(samples);
  }
  int64_t total = 0;
  int64_t root = -1;

 protected:
  void main_hook(const JoinStep& step) override {
    REQUIRE(step.live < group_.size());
    sum(0);
  }
  void post_hook(int64_t its_root) override {
    root = its_root;
  }

 private:
  void sum(int64_t samples) {
    auto count = torch::tensor({samples});
    group_.all_reduce(count);
    total += count.item<int64_t>();
  }
  ProcessGroup group_;
};

RANKS_TEST("a program's own collectives take part in a join", 4) {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  SampleCount count(group);
  {
    Join join(group, {reducer.joinable(), count});
    for (int64_t i = 0; i < 3 - group.rank() % 3; ++i) {
      loss_of(net, 1).backward();
      if (i % 2 == 0) { // not in every step
        count.add(10 + i);
      }
    }
  }
  // Ranks 0 and 3 have 3 steps, rank 1 has 2, rank 2 has 1.
  REQUIRE(count.total == 4 * 10 + 2 * 12);
  REQUIRE(count.root == 3);
  REQUIRE(equal_on_all(group, net->weight.detach()));
}

/// A net of which a backward may reach a part only.
struct TwoParts : torch::nn::Module {
  torch::Tensor used = register_parameter("used", torch::ones({3}));
  torch::Tensor unused = register_parameter("unused", torch::ones({2}));
};

RANKS_TEST("several joinables end early, or have no join, together", {3, 4}) {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group);
  SampleCount count(group);
  const Join::Joinables joinables{count, reducer.joinable()};
  {
    Join off(group, joinables, JoinOptions().enable(false));
    count.add(1);
    loss_of(net, 1).backward();
  }
  int64_t steps = 0;
  const auto train = [&] {
    Join join(group, joinables, JoinOptions().throw_on_early_termination(true));
    for (; steps < 2 + group.rank(); ++steps) {
      count.add(1);
      loss_of(net, 1).backward();
    }
  };
  REQUIRE_THROWS_AS(train(), EarlyTermination);
  REQUIRE(steps == 2);
  REQUIRE(count.total == 3 * group.size());
  REQUIRE(count.root == -1); // no end was reached
  REQUIRE(net->weight.grad().item<float>() == 3);
}

RANKS_TEST("ranks without inputs agree on unused parameters of two Reducers") {
  for (const bool at_once : {true, false}) {
    TwoParts first;
    TwoParts second;
    Reducer of_first(first, group);
    Reducer of_second(second, group);
    Join join(group, {of_first.joinable(), of_second.joinable()});
    for (int64_t i = 0; i < (group.rank() == 1 ? 1 : 3); ++i) {
      const double live = i == 0 ? 3 : 2;
      first.zero_grad();
      second.zero_grad();
      if (at_once) {
        (first.used + second.used).sum().backward();
      } else {
        first.used.sum().backward();
        second.used.sum().backward();
      }
      for (const auto* net : {&first, &second}) {
        REQUIRE(is(net->used.grad(), live / 3));
        REQUIRE_FALSE(net->unused.grad().defined());
      }
    }
  }
}

/// Only rank 0 has more than one step. Only the first step uses both branches.
template <typename Step>
void use_a_branch_once(
    BranchNet& net,
    const ProcessGroup& group,
    const Step& step) {
  for (int64_t i = 0; i < (group.rank() == 0 ? 4 : 1); ++i) {
    net.zero_grad();
    const auto x = torch::ones({1, 4});
    auto loss = net.forward(x, true).sum();
    if (i == 0) {
      loss = loss + net.forward(x, false).sum();
    }
    loss.backward();
    step();
  }
}

RANKS_TEST("no rank steps again with a gradient of an earlier step") {
  using torch::optim::Adam;
  for (const bool views : {false, true}) {
    const auto options = ReducerOptions().gradient_as_bucket_view(views);
    const auto net = std::make_shared<BranchNet>();
    {
      Reducer reducer(net, group, options);
      Adam adam(net->parameters());
      reducer.step_in_backward(adam);
      {
        auto join = reducer.join();
        use_a_branch_once(*net, group, [] {});
      }
      const auto state_of = [&adam](const torch::Tensor& parameter) {
        return static_cast<torch::optim::AdamParamState&>(
            *adam.state().at(parameter.unsafeGetTensorImpl()));
      };
      REQUIRE(state_of(net->left->weight).step() == 4);
      REQUIRE(state_of(net->right->weight).step() == 1);
      REQUIRE(equal_on_all(group, state_of(net->left->weight).exp_avg()));
    }
    Reducer reducer(net, group, options);
    ZeroRedundancyOptimizer<torch::optim::SGD> sharded(
        net->parameters(), group, torch::optim::SGDOptions(1));
    const auto bias = net->right->bias.detach().clone();
    {
      Join join(group, {reducer.joinable(), sharded});
      use_a_branch_once(*net, group, [&sharded] { sharded.step(); });
    }
    REQUIRE(torch::allclose(bias - net->right->bias, torch::ones({2})));
  }
}

RANKS_TEST("a rank without inputs does not step ignored parameters again") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, group, ReducerOptions().parameters_to_ignore({"bias"}));
  torch::optim::SGD optimizer(net->parameters(), 1);
  reducer.step_in_backward(optimizer);
  const auto start = net->bias.detach().clone();
  const int64_t steps = group.rank() == 2 ? 1 : 3;
  {
    auto join = reducer.join();
    for (int64_t i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      loss_of(net, 1).backward();
    }
  }
  REQUIRE(torch::allclose(start - net->bias, torch::full({1}, 1. * steps)));
}

TEST_CASE("a group of one joins nobody") {
  torch::nn::Linear net(1, 1);
  Reducer reducer(net, ProcessGroup());
  auto join = reducer.join();
  loss_of(net, 1).backward();
}

} // namespace ddp::test::join_test
