#include <tests/support/catch.h>
#include <tests/support/nearly_equal.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <ddp/reducer.h>

#include <map>
#include <tuple>

namespace ddp::test::python_behaviours_test {

// What the tests of Python's DistributedDataParallel ask of it, of an attached
// Reducer: docs/parity.md lists which is which.

namespace {

/// Rows for all ranks, the same on each, of which a rank's share is two.
struct Data {
  Data(const ProcessGroup& group, int64_t step, int64_t width, int64_t out) {
    torch::manual_seed(500 + step);
    all = torch::randn({2 * group.size(), width});
    targets = torch::randn({2 * group.size(), out});
    own = all.narrow(0, 2 * group.rank(), 2);
    own_targets = targets.narrow(0, 2 * group.rank(), 2);
  }
  torch::Tensor all, targets, own, own_targets;
};

/// Trains on shares and, without a Reducer, on the whole batch; compares.
template <typename Optimizer, typename OptimizerOptions>
void compare_with_full_batch(
    const ProcessGroup& group,
    const ReducerOptions& options,
    const OptimizerOptions& optimizer_options,
    bool set_to_none,
    size_t expected_buckets) {
  torch::manual_seed(group.rank());
  auto net = std::make_shared<UnevenNet>();
  auto alone = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, options);
  copy_parameters(*net, *alone);
  const auto start = net->last->weight.detach().clone();
  Optimizer optimizer(net->parameters(), optimizer_options);
  Optimizer alone_optimizer(alone->parameters(), optimizer_options);
  for (int step = 0; step < 5; ++step) {
    const Data data(group, step, 7, 3);
    optimizer.zero_grad(set_to_none);
    alone_optimizer.zero_grad(set_to_none);
    torch::mse_loss(net->forward(data.own), data.own_targets).backward();
    torch::mse_loss(alone->forward(data.all), data.targets).backward();
    optimizer.step();
    alone_optimizer.step();
    INFO("step " << step);
    REQUIRE(nearly_equal(*net, *alone));
    REQUIRE(equal_on_all(group, *net));
  }
  REQUIRE(reducer.buckets().size() == expected_buckets);
  REQUIRE(!torch::allclose(net->last->weight, start, 0, 1e-3));
}

/// A stem and two heads, of which a loss may use one. Outputs of any shape.
struct HeadsNet : torch::nn::Module {
  torch::nn::Linear stem{nullptr}, a{nullptr}, b{nullptr};

  HeadsNet() {
    stem = register_module("stem", torch::nn::Linear(4, 8));
    a = register_module("a", torch::nn::Linear(8, 2));
    b = register_module("b", torch::nn::Linear(8, 2));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    x = torch::relu(stem(x));
    return {a(x), b(x)};
  }
  std::map<std::string, torch::Tensor> forward_map(const torch::Tensor& x) {
    const auto [of_a, of_b] = forward(x);
    return {{"a", of_a}, {"b", of_b}};
  }
};

/// Multiplies, but gives the factor no gradient unless told.
struct MayForget : torch::autograd::Function<MayForget> {
  static torch::Tensor forward(
      torch::autograd::AutogradContext* context,
      const torch::Tensor& x,
      const torch::Tensor& factor,
      bool forget) {
    context->save_for_backward({x, factor});
    context->saved_data["forget"] = forget;
    return x * factor;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const bool forget = context->saved_data["forget"].toBool();
    return {
        grads[0] * saved[1],
        forget ? torch::Tensor() : grads[0] * saved[0],
        torch::Tensor()};
  }
};

/// Options that Python treats unused parameters differently under.
std::vector<ReducerOptions> all_modes() {
  return {
      ReducerOptions(),
      ReducerOptions().find_unused_parameters(true),
      ReducerOptions().static_graph(true),
      ReducerOptions().gradient_as_bucket_view(true)};
}

} // namespace

RANKS_TEST("training on shares equals one process on the full batch") {
  const auto compare = [&](const ReducerOptions& options,
                           bool set_to_none,
                           size_t expected_buckets) {
    compare_with_full_batch<torch::optim::SGD>(
        group,
        options,
        torch::optim::SGDOptions(0.05).momentum(0.9),
        set_to_none,
        expected_buckets);
  };
  compare({}, true, 2);
  compare(ReducerOptions().gradient_as_bucket_view(true), false, 2);
  compare(ReducerOptions().find_unused_parameters(true), true, 2);
  compare(ReducerOptions().static_graph(true), false, 2);
}

RANKS_TEST("training with one parameter per bucket equals the full batch", 4) {
  for (const bool set_to_none : {true, false}) {
    compare_with_full_batch<torch::optim::SGD>(
        group,
        ReducerOptions().bucket_cap_mb(1e-6).gradient_as_bucket_view(
            !set_to_none),
        torch::optim::SGDOptions(0.05),
        set_to_none,
        6);
  }
}

TEST_CASE("training with Adam equals the full batch") {
  // Adam divides by gradients: with its default epsilon it would blow rounding
  // errors up.
  ranks(3, [](ProcessGroup group) {
    compare_with_full_batch<torch::optim::Adam>(
        group, {}, torch::optim::AdamOptions(1e-2).eps(1e-2), true, 2);
  });
}

RANKS_TEST(
    "gradients agree with no_sync and branches that depend on the rank",
    4) {
  for (const auto& options : all_modes()) {
    std::vector<torch::nn::Linear> branches;
    torch::nn::ModuleList net;
    for (int i = 0; i < 4; ++i) {
      branches.emplace_back(3, 2);
      net->push_back(branches.back());
    }
    Reducer reducer(net, group, options);
    for (int step = 0; step < 3; ++step) {
      reset_gradients(*net);
      const auto branch = [&](int64_t micro) {
        return branches[(group.rank() + micro + step) % 4];
      };
      {
        const auto guard = reducer.no_sync();
        branch(0)->forward(batch(group, step, 3)).sum().backward();
      }
      branch(1)->forward(batch(group, step + 9, 3)).sum().backward();
      for (const auto& parameter : net->parameters()) {
        REQUIRE(parameter.grad().defined());
        REQUIRE(equal_on_all(group, parameter.grad()));
      }
      // Five rows from each of two ranks, over four.
      REQUIRE(branches[0]->bias.grad().equal(torch::full({2}, 2.5)));
    }
  }
}

RANKS_TEST(
    "locally unused parameters get gradients, globally unused ones not") {
  for (const auto& options : all_modes()) {
    for (const int64_t complete : {-1, 0}) { // the rank that uses both
      auto net = std::make_shared<BranchNet>();
      Reducer reducer(net, group, options);
      for (int step = 0; step < 4; ++step) {
        reset_gradients(*net);
        const auto input = batch(group, step, 4);
        auto loss = net->forward(input, group.rank() != 1).sum();
        if (group.rank() == complete) {
          loss = loss + net->forward(input, false).sum();
        }
        REQUIRE(!net->left->weight.grad().defined());
        loss.backward();
        for (const auto& item : net->named_parameters()) {
          INFO("step " << step << ", " << item.key());
          const bool never = item.key().rfind("never", 0) == 0;
          REQUIRE(item.value().grad().defined() == !never);
          REQUIRE((never || equal_on_all(group, item.value().grad())));
        }
        const double users = complete == 0 ? 2 : 1;
        REQUIRE(nearly_equal(
            net->right->bias.grad(), torch::full({2}, 5 * users / 3)));
      }
    }
  }
}

RANKS_TEST(
    "an output that the loss does not use leaves gradients as alone",
    4) {
  for (const auto& options : all_modes()) {
    torch::manual_seed(1);
    auto net = std::make_shared<HeadsNet>();
    auto alone = std::make_shared<HeadsNet>();
    Reducer reducer(net, group, options);
    copy_parameters(*net, *alone);
    const auto loss = [](HeadsNet& n, int step) {
      torch::manual_seed(step);
      const auto input = torch::randn({3, 4});
      auto map = n.forward_map(input);
      const auto [a, b] = n.forward(input);
      return step == 2 ? (map.at("a") + b).sum()
                       : (step % 2 ? map.at("a") : a).pow(2).sum();
    };
    for (int step = 0; step < 5; ++step) {
      const auto before = net->b->weight.grad().defined()
          ? net->b->weight.grad().clone()
          : torch::Tensor();
      loss(*net, step).backward(); // the same on all ranks
      loss(*alone, step).backward();
      if (step > 2) { // the second head is not used any more
        REQUIRE(net->b->weight.grad().equal(before));
      }
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        const auto& grad = net->parameters()[i].grad();
        const auto& expected = alone->parameters()[i].grad();
        INFO("step " << step << ", parameter " << i);
        REQUIRE(grad.defined() == (i < 4 || step >= 2));
        REQUIRE(grad.defined() == expected.defined());
        REQUIRE((!grad.defined() || nearly_equal(grad, expected)));
      }
    }
  }
}

RANKS_TEST("a gradient that backward leaves undefined stays as it was", 4) {
  for (const auto& options : all_modes()) {
    auto factor = torch::ones({2}, torch::requires_grad());
    auto other = torch::ones({2}, torch::requires_grad());
    Reducer reducer({factor, other}, group, options);
    const auto step = [&](bool forget) {
      const auto x = other * (group.rank() + 1.0);
      MayForget::apply(x, factor, forget).sum().backward();
    };
    step(true);
    REQUIRE(!factor.grad().defined());
    step(group.rank() != 1); // only rank 1 has a gradient: 2
    REQUIRE(factor.grad().equal(torch::full({2}, 0.5)));
    step(true);
    REQUIRE(factor.grad().equal(torch::full({2}, 0.5)));
    step(false); // added to 0.5 on all: the mean of 1 to 4
    REQUIRE(factor.grad().equal(torch::full({2}, 3.0)));
    REQUIRE(other.grad().equal(torch::full({2}, 4 * 2.5)));
  }
}

RANKS_TEST("forwards without a backward do no harm") {
  for (const auto& options : all_modes()) {
    const Twins<BranchNet> twins(group, options);
    for (int step = 0; step < 8; ++step) {
      const auto input = batch(group, step, 4);
      const auto output = twins.net->forward(input, true);
      if (step >= 4) {
        twins.reset();
        output.sum().backward();
        twins.local->forward(input, true).sum().backward();
        twins.check();
      }
    }
  }
}

RANKS_TEST("two backwards over two outputs of one forward") {
  for (const auto& options : all_modes()) {
    const Twins<HeadsNet> twins(group, options);
    for (int step = 0; step < 4; ++step) {
      twins.reset();
      for (auto* net : {twins.net.get(), twins.local.get()}) {
        const auto [a, b] = net->forward(batch(group, step, 4));
        a.sum().backward({}, /*retain_graph=*/true);
        b.pow(2).sum().backward();
      }
      twins.check(1e-5, 1e-5);
    }
  }
}

RANKS_TEST("two forwards and one backward in every mode") {
  for (const auto& options : all_modes()) {
    const Twins<UnevenNet> twins(group, options);
    for (int step = 0; step < 3; ++step) {
      twins.reset();
      twins.backward([&](auto& net) {
        const auto first = net.forward(batch(group, step, 7));
        const auto second = net.forward(batch(group, step + 50, 7));
        return first.sum() + second.pow(2).sum();
      });
      twins.check(1e-4, 1e-4);
    }
  }
}

} // namespace ddp::test::python_behaviours_test
