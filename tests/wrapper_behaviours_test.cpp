#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <ddp/distributed_data_parallel.h>
#include <ddp/process_group/process_group_impl.h>

namespace ddp::test::wrapper_behaviours_test {

// The tests of Python's DistributedDataParallel, applied to the wrapper, whose
// forward decides what is reduced. docs/parity.md lists the counterparts.

/// Outputs of many shapes.
struct OutputsNet : LayeredNet {
  torch::nn::Linear a = linear("a", 4, 2);
  torch::nn::Linear b = linear("b", 4, 2);
  using Map = std::map<std::string, torch::Tensor>;

  struct Tuple {};
  struct Nested {};
  std::vector<torch::Tensor> forward(const torch::Tensor& x) {
    return {a(x), b(x)};
  }
  std::tuple<torch::Tensor, int, torch::Tensor> forward(
      const torch::Tensor& x,
      Tuple /*kind*/) {
    return {a(x), 5, b(x)};
  }
  std::pair<std::vector<Map>, std::optional<torch::Tensor>> forward(
      const torch::Tensor& x,
      Nested /*kind*/) {
    return {{Map{{"b", b(x)}}, Map{}}, a(x)};
  }
};

/// Returns more outputs than those computed from its parameters.
struct TalkativeNet : LayeredNet {
  torch::nn::Linear layer = linear("linear", 4, 2);

  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& x) {
    return {layer(x), torch::arange(3), torch::full({2}, 3.0)};
  }
};

/// Steps of a net in the wrapper; each starts without gradients.
template <typename Net, typename Step>
void each_step(const ProcessGroup& group, const Step& step) {
  auto net = std::make_shared<Net>();
  DistributedDataParallel<Net> model(net, group);
  for (int i = 0; i < 4; ++i) {
    reset_gradients(*net);
    step(*model, *net, i);
  }
}

RANKS_TEST("a forward under no_sync is not reduced, wherever its backward is") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    torch::Tensor output;
    {
      const auto guard = model.no_sync();
      output = model.forward(own(group));
    }
    output.sum().backward();
    REQUIRE(is(net.weight.grad(), group.rank() + 1.0));
    // The next that is reduced contains it: 2 (1 + 2 + 3) / 3.
    model.forward(own(group)).sum().backward();
    REQUIRE(is(net.weight.grad(), 4));
  });
}

RANKS_TEST("a forward outside no_sync is reduced, wherever its backward is") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    const auto output = model.forward(own(group));
    const auto guard = model.no_sync();
    output.sum().backward();
    REQUIRE(is(net.weight.grad(), 2));
  });
}

RANKS_TEST("a forward of module() is not reduced") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    model.module()->forward(own(group)).sum().backward();
    REQUIRE(is(net.weight.grad(), group.rank() + 1.0));
    if (group.rank() == 0) { // alone: it must not wait for the others
      model.module()->forward(own(group)).sum().backward();
      reset_gradients(net);
      model.module()->forward(own(group)).sum().backward();
    }
    model.forward(own(group)).sum().backward();
    REQUIRE(is(net.weight.grad(), 4));
  });
}

RANKS_TEST("a second backward over a retained graph is reduced again") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    const auto loss = model.forward(own(group)).sum();
    loss.backward({}, /*retain_graph=*/true);
    REQUIRE(is(net.weight.grad(), 2));
    loss.backward();
    REQUIRE(is(net.weight.grad(), 4));
  });
}

RANKS_TEST("an output that depends on no parameter takes part") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int step) {
    model.forward(own(group), group.rank() != step).sum().backward();
    REQUIRE(equal_on_all(group, net.weight.grad()));
    const double missing = step < 3 ? step + 1.0 : 0.0;
    REQUIRE(is(net.weight.grad(), (6 - missing) / 3));
    if (step == 3) { // on all
      model.forward(own(group), false).sum().backward();
    }
  });
}

RANKS_TEST("several forwards and one backward, through the wrapper") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    const auto first = model.forward(own(group));
    model.forward(own(group)); // unused output
    const auto second = model.forward(own(group) * 3);
    (first + second).sum().backward();
    REQUIRE(is(net.weight.grad(), 8));
  });
}

RANKS_TEST(
    "several backwards over outputs of one forward, through the wrapper") {
  each_step<OutputsNet>(group, [&](auto& model, OutputsNet& net, int) {
    const auto outputs = model.forward(own(group, {1, 4}));
    outputs[0].sum().backward();
    REQUIRE(is(net.a->weight.grad(), 2));
    REQUIRE(!net.b->weight.grad().defined());
    (outputs[1] * 3).sum().backward();
    REQUIRE(is(net.a->weight.grad(), 2));
    REQUIRE(is(net.b->weight.grad(), 6));
  });
}

RANKS_TEST("forwards without a backward, then with one, through the wrapper") {
  auto net = std::make_shared<BranchNet>();
  auto local = std::make_shared<BranchNet>();
  DistributedDataParallel<BranchNet> model(net, group);
  copy_parameters(*net, *local);
  for (int step = 0; step < 8; ++step) {
    const auto input = batch(group, step, 4);
    const auto output = model->forward(input, true);
    if (step >= 4) {
      reset_gradients(*net);
      reset_gradients(*local);
      output.sum().backward();
      local->forward(input, true).sum().backward();
      require_means(group, *net, *local);
      REQUIRE(!net->never->weight.grad().defined());
    }
  }
}

RANKS_TEST("outputs may be vectors, tuples, maps, and nested") {
  const auto x = own(group, {1, 4});
  each_step<OutputsNet>(group, [&](auto& model, OutputsNet& net, int) {
    const auto averaged = [&](const torch::nn::Linear& used,
                              const torch::nn::Linear& unused) {
      const bool right =
          !unused->weight.grad().defined() && is(used->weight.grad(), 2);
      reset_gradients(net);
      return right;
    };
    model.forward(x)[0].sum().backward();
    REQUIRE(averaged(net.a, net.b));
    std::get<2>(model.forward(x, OutputsNet::Tuple{})).sum().backward();
    REQUIRE(averaged(net.b, net.a));
    model.forward(x, OutputsNet::Nested{}).second->sum().backward();
    REQUIRE(averaged(net.a, net.b));
    model.forward(x, OutputsNet::Nested{}).first[0]["b"].sum().backward();
    REQUIRE(averaged(net.b, net.a));
  });
}

RANKS_TEST("outputs that are no function of parameters keep their values") {
  each_step<TalkativeNet>(group, [&](auto& model, TalkativeNet& net, int) {
    const auto [output, integers, plain] = model.forward(own(group, {1, 4}));
    output.sum().backward();
    REQUIRE(integers.equal(torch::arange(3)));
    REQUIRE(is(plain.detach(), 3));
    REQUIRE(is(net.layer->weight.grad(), 2));
    const torch::NoGradGuard no_grad;
    const auto outputs = model.forward(torch::ones({1, 4}));
    REQUIRE(!std::get<0>(outputs).requires_grad());
    REQUIRE(!std::get<2>(outputs).requires_grad());
  });
}

RANKS_TEST("rank 0 may evaluate a net without buffers alone") {
  each_step<Scale>(group, [&](auto& model, Scale& net, int) {
    model.forward(own(group)).sum().backward();
    REQUIRE(is(net.weight.grad(), 2));
    if (group.rank() == 0) {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < 3; ++i) {
        REQUIRE(!model.forward(own(group)).requires_grad());
      }
    }
    REQUIRE(is(net.weight.grad(), 2));
  });
}

RANKS_TEST("autograd::grad through the wrapper's output is not reduced") {
  each_step<BranchNet>(group, [&](auto& model, BranchNet& net, int step) {
    auto input = batch(group, step, 4).requires_grad_();
    const auto loss = model.forward(input, true).sum();
    const auto& weight = net.stem->weight;
    if (group.rank() == 0) { // a saliency map on one rank
      torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true);
      torch::autograd::grad({loss}, {weight}, {}, /*retain_graph=*/true);
      REQUIRE(!weight.grad().defined());
    }
    loss.backward();
    REQUIRE(equal_on_all(group, weight.grad()));
    REQUIRE(is(net.left->bias.grad(), 5));
  });
}

RANKS_TEST("an output that depends on no parameter is no unmanaged leaf") {
  auto net = std::make_shared<BranchNet>();
  DistributedDataParallel<BranchNet> model(
      net, group, ReducerOptions().unmanaged_leaves(Severity::kError));
  set_requires_grad(*net->stem, false);
  set_requires_grad(*net->left, false);
  auto loss = model->forward(torch::ones({1, 4}), true).sum();
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  REQUIRE(model->reducer().statistics().iteration == 2);
  REQUIRE(!net->right->weight.grad().defined());
}

// Backwards that bypass the wrapper's output, or that are not for the
// parameters.

struct Critic : LayeredNet {
  torch::nn::Linear first =
      add("first",
          torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)));
  torch::nn::Linear last =
      add("last",
          torch::nn::Linear(torch::nn::LinearOptions(8, 1).bias(false)));
  /// A loss that the module keeps.
  torch::Tensor aside;

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = last(torch::tanh(first(x)));
    aside = y.pow(2).mean();
    return y;
  }
};

/// The squared distance of the gradient's norm from 1: the loss of WGAN-GP.
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
    require_means(group, *net, *local, 1e-4, 1e-6);
  }
}

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

RANKS_TEST("a guard after a forward changes nothing, whatever the loss is") {
  each_step<Critic>(group, [&](auto& model, Critic& net, int step) {
    model.forward(batch(group, step, 4));
    { const auto guard = model.no_sync(); }
    net.aside.backward();
    REQUIRE(equal_on_all(group, net.first->weight.grad()));
  });
}

RANKS_TEST("a backward for an input only is each rank's own") {
  each_step<Critic>(group, [&](auto& model, Critic& net, int step) {
    if (group.rank() == 0) { // a saliency map
      auto input = batch(group, 9, 4).requires_grad_();
      model.forward(input).sum().backward({}, false, false, {{input}});
      REQUIRE(input.grad().defined());
    }
    model.forward(batch(group, step, 4)).sum().backward();
    REQUIRE(equal_on_all(group, net.first->weight.grad()));
  });
}

RANKS_TEST("a wrapper makes a group only for what needs one") {
  const auto groups_of = [&](const ReducerOptions& options, bool buffer) {
    const auto& made = detail::ProcessGroupImpl::of(group).children;
    const auto before = made;
    const auto net = std::make_shared<Scale>();
    if (buffer) {
      net->register_buffer("buffer", torch::zeros({1}));
    }
    const DistributedDataParallel<Scale> model(net, group, options);
    return made - before;
  };
  REQUIRE(groups_of({}, true) == 2); // for gradients and for buffers
  REQUIRE(groups_of({}, false) == 1);
  const auto unchecked = ReducerOptions().init_sync(false);
  REQUIRE(groups_of(unchecked, false) == 2); // other ranks may have buffers
  REQUIRE(groups_of(ReducerOptions().broadcast_buffers(false), true) == 1);
  REQUIRE(groups_of(ReducerOptions().share_communicator(true), true) == 0);
}

} // namespace ddp::test::wrapper_behaviours_test
