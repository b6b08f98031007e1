#include <tests/support/activation_checkpoint.h>
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

namespace ddp::test::reentrant_test {

struct Layers : LayeredNet {
  torch::nn::Linear first = linear("first", 4, 6);
  torch::nn::Linear second = linear("second", 6, 6);
  torch::nn::Linear last = linear("last", 6, 2);
  Segment body;
  bool checkpointed = false;
  int repeats = 1;

  Layers() {
    body = [this](const torch::Tensor& x) { return torch::tanh(second(x)); };
  }

  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    for (int i = 0; i < repeats; ++i) {
      x = checkpointed ? checkpoint(x, body) : body(x);
    }
    return last(x);
  }
};

/// Compares a net with checkpoints and one without.
void compare(
    const ProcessGroup& group,
    const std::vector<int>& repeats,
    bool accumulate = false) {
  Twins<Layers> twins(group);
  twins.net->checkpointed = true;
  for (size_t step = 0; step < repeats.size(); ++step) {
    twins.net->repeats = twins.local->repeats = repeats[step];
    twins.reset();
    const auto backward = [&](int64_t number) {
      const auto input = batch(group, number, 4);
      twins.backward([&](auto& net) { return net.forward(input).sum(); });
    };
    if (accumulate) {
      const auto guard = twins.reducer.no_sync();
      backward(100);
    }
    backward(step);
    INFO("step " << step);
    twins.check(1e-4, 1e-5);
  }
}

RANKS_TEST("activation checkpointing, once and several times") {
  compare(group, {1, 1, 1, 1});
  compare(group, {3, 3, 3, 3}); // the same parameters in three segments
  compare(group, {3, 3, 3, 3}, /*accumulate=*/true);
  compare(group, {1, 2, 3, 4});
}

RANKS_TEST("a net that is one checkpoint is one reduction") {
  auto net = std::make_shared<Layers>();
  const Segment whole = [&](const torch::Tensor& x) { return net->forward(x); };
  Reducer reducer(net, group, ReducerOptions().record(true));
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    const auto input = batch(group, step, 4).requires_grad_();
    checkpoint(input, whole).sum().backward();
    REQUIRE(reducer.timeline().step == step + 1);
    REQUIRE(equal_on_all(group, net->last->weight.grad()));
  }
}

RANKS_TEST("checkpoints inside checkpoints, past the engine's limit") {
  // At a depth of 60 the engine continues in another thread.
  for (const int depth : {2, 70}) {
    auto w = torch::ones({2}, torch::kDouble).requires_grad_();
    auto v = torch::ones({2}, torch::kDouble).requires_grad_();
    std::vector<Segment> nested(depth);
    nested[0] = [&](const torch::Tensor& x) { return x * w; };
    for (int i = 1; i < depth; ++i) {
      nested[i] = [&, i](const torch::Tensor& x) {
        return checkpoint(x, nested[i - 1]) + w * 2;
      };
    }
    Reducer reducer({w, v}, group);
    for (int step = 0; step < 3; ++step) {
      w.mutable_grad().reset();
      v.mutable_grad().reset();
      const double x = 1.0 + static_cast<double>(group.rank());
      (checkpoint(v * x, nested[depth - 1]) * v).sum().backward();
      // d/dw (w v x + 2 (depth - 1) w) v = v^2 x + 2 (depth - 1) v
      REQUIRE(
          nearly_equal(w.grad(), torch::full_like(w, 2.0 + 2.0 * (depth - 1))));
      // d/dv (w v^2 x + 2 (depth - 1) w v)
      REQUIRE(
          nearly_equal(v.grad(), torch::full_like(v, 4.0 + 2.0 * (depth - 1))));
    }
  }
}

RANKS_TEST("an undefined gradient in a checkpoint comes like any other") {
  auto w = torch::ones({2}, torch::requires_grad());
  const Segment cut = [](const torch::Tensor& y) { return y.detach(); };
  const Segment segment = [&](const torch::Tensor& x) {
    return x + checkpoint(x * w, cut);
  };
  Reducer reducer({w}, group);
  const double x = 1.0 + static_cast<double>(group.rank());
  for (int step = 0; step < 4; ++step) {
    checkpoint(w * x, segment).sum().backward();
    REQUIRE(w.grad().eq(2).all().item<bool>());
    w.mutable_grad().zero_(); // looks like a change by backward
  }
}

} // namespace ddp::test::reentrant_test
