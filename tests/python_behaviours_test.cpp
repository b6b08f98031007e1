#include <tests/support/ranks.h>
#include <tests/support/twins.h>

namespace ddp::test::python_behaviours_test {

// The tests of Python's DistributedDataParallel, applied to an attached
// Reducer. docs/parity.md lists the counterparts.

/// Multiplies, but computes the factor's gradient only on request.
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

using at::MemoryFormat;

/// Convolutions in the memory formats given.
struct Convolutions : torch::nn::SequentialImpl {
  explicit Convolutions(const std::vector<MemoryFormat>& formats) {
    for (const auto format : formats) {
      torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 4, 3).padding(1));
      layer->weight.set_data(layer->weight.detach().contiguous(format));
      push_back(layer);
    }
  }
};

void compare_layouts(
    const ProcessGroup& group,
    const std::vector<MemoryFormat>& formats,
    const ReducerOptions& options,
    bool set_to_none) {
  const auto net = std::make_shared<Convolutions>(formats);
  const auto local = std::make_shared<Convolutions>(formats);
  Reducer reducer(net, group, options);
  copy_parameters(*net, *local);
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(10 * step + group.rank());
    const auto input = torch::randn({2, 4, 5, 5});
    for (const auto& each : {net, local}) {
      each->zero_grad(set_to_none);
      each->forward(input).pow(2).sum().backward();
    }
    INFO("step " << step);
    require_means(group, *net, *local, 1e-4, 1e-4);
    for (const auto& parameter : net->parameters()) {
      REQUIRE(parameter.grad().strides() == parameter.strides());
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

RANKS_TEST("a new group and a new Reducer go on with the same net") {
  auto net = std::make_shared<BranchNet>();
  auto alone = std::make_shared<BranchNet>();
  int step = 0;
  for (const int last : {4, 10}) {
    auto own_group = group.duplicate();
    {
      Reducer reducer(
          net, own_group, ReducerOptions().share_communicator(true));
      if (step == 0) {
        copy_parameters(*net, *alone);
      }
      for (; step < last; ++step) {
        torch::manual_seed(500 + step); // rows for all ranks
        const auto all = torch::randn({2 * group.size(), 4});
        const auto own = all.narrow(0, 2 * group.rank(), 2);
        const auto train = [](BranchNet& each, const torch::Tensor& input) {
          torch::optim::SGD optimizer(each.parameters(), 0.05);
          optimizer.zero_grad();
          each.forward(input, true).pow(2).mean().backward();
          optimizer.step();
        };
        train(*net, own);
        train(*alone, all);
        REQUIRE(nearly_equal(*net, *alone));
      }
    }
    own_group.shutdown();
  }
}

RANKS_TEST("a layer without outputs has gradients without elements") {
  torch::nn::Linear only(10, 0);
  Reducer reducer(only, group); // its buckets are empty
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*only);
    only->forward(torch::ones({2, 10})).sum().backward();
    REQUIRE(only->weight.grad().sizes() == at::IntArrayRef({0, 10}));
    REQUIRE(only->bias.grad().sizes() == at::IntArrayRef({0}));
  }
}

RANKS_TEST("gradients have their parameter's memory format") {
  const auto last = MemoryFormat::ChannelsLast;
  const auto first = MemoryFormat::Contiguous;
  const auto tiny = ReducerOptions().bucket_cap_mb(1e-6);
  const auto view = ReducerOptions().gradient_as_bucket_view(true);
  for (const auto& formats : std::vector<std::vector<MemoryFormat>>{
           {first, first, first},
           {last, last, last},
           {first, last, first},
           {last, first, last}}) {
    for (const auto& options : {ReducerOptions(), tiny, view}) {
      compare_layouts(group, formats, options, true);
      compare_layouts(group, formats, options, false);
    }
  }
}

RANKS_TEST("a tensor hook sees and may change this rank's own gradient") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group);
  at::Tensor seen; // stays valid: not the bucket's memory
  weight.register_hook([&](const at::Tensor& grad) {
    seen = grad;
    return grad * 3;
  });
  for (int step = 0; step < 3; ++step) {
    weight.mutable_grad().reset();
    (weight * (group.rank() + 1.0)).sum().backward();
    REQUIRE(nearly_equal(weight.grad(), torch::full({2}, 6.0)));
    REQUIRE(seen.eq(group.rank() + 1.0).all().item<bool>());
    REQUIRE(!seen.is_alias_of(weight.grad()));
  }
}

} // namespace ddp::test::python_behaviours_test
