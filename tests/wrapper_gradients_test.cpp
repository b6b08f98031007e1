#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/distributed_data_parallel.h>

namespace ddp::test::wrapper_gradients_test {

// Backwards that do not come through the wrapper's output, or are not for the
// parameters.

namespace {

struct Critic : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  /// A loss of the module's own.
  torch::Tensor aside;

  Critic() {
    const auto layer = [](int64_t in, int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
    };
    first = register_module("first", layer(4, 8));
    last = register_module("last", layer(8, 1));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = last(torch::tanh(first(x)));
    aside = y.pow(2).mean();
    return y;
  }
};

/// How far the gradient is from a length of 1: the loss of WGAN-GP.
template <typename Net>
torch::Tensor penalty(Net& net, const torch::Tensor& input) {
  const auto output = net.forward(input).sum();
  const auto grad = torch::autograd::grad(
      {output}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
  return (grad.norm(2, 1) - 1).pow(2).mean();
}

/// Compares the wrapper's gradients of a loss with the mean over ranks.
template <typename Loss>
void compare(const ProcessGroup& group, const Loss& loss) {
  auto net = std::make_shared<Critic>();
  auto local = std::make_shared<Critic>();
  DistributedDataParallel<Critic> model(net, group);
  copy_parameters(*net, *local);
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    reset_gradients(*local);
    loss(*model, *net, batch(group, step, 4)).backward();
    loss(*local, *local, batch(group, step, 4)).backward();
    const auto expected = average(group, *local);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto& grad = net->parameters()[i].grad();
      REQUIRE(torch::allclose(grad, expected[i], 1e-4, 1e-6));
      REQUIRE(equal_on_all(group, grad));
    }
  }
}

} // namespace

RANKS_TEST("a gradient penalty alone is reduced") {
  compare(group, [](auto& model, auto&, torch::Tensor input) {
    return penalty(model, input.requires_grad_());
  });
}

RANKS_TEST("a loss that forward left in the module is reduced") {
  compare(group, [](auto& model, auto& net, torch::Tensor input) {
    model.forward(input);
    return net.aside;
  });
}

RANKS_TEST("a backward for an input only is each rank's own") {
  auto net = std::make_shared<Critic>();
  DistributedDataParallel<Critic> model(net, group);
  for (int step = 0; step < 3; ++step) {
    if (group.rank() == 0) { // a saliency map
      auto input = batch(group, 9, 4).requires_grad_();
      model->forward(input).sum().backward({}, false, false, {{input}});
      REQUIRE(input.grad().defined());
    }
    reset_gradients(*net);
    model->forward(batch(group, step, 4)).sum().backward();
    REQUIRE(equal_on_all(group, net->first->weight.grad()));
  }
}

} // namespace ddp::test::wrapper_gradients_test
