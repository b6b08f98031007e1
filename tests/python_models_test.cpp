#include <tests/support/catch.h>
#include <tests/support/nearly_equal.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/temporary_folder.h>

#include <ddp/checkpoint/checkpoint.h>
#include <ddp/reducer.h>

namespace ddp::test::python_models_test {

// What the tests of Python's DistributedDataParallel ask of it for models of
// all kinds, and of its life: docs/parity.md lists which is which.

namespace {

/// The rows of step `step`, of all ranks.
torch::Tensor rows(const ProcessGroup& group, int64_t step) {
  torch::manual_seed(700 + step);
  return torch::randn({2 * group.size(), 4});
}

/// One step of training on this rank's rows, or on all.
void train_step(BranchNet& net, const torch::Tensor& input) {
  torch::optim::SGD optimizer(net.parameters(), 0.05);
  optimizer.zero_grad();
  net.forward(input, true).pow(2).mean().backward();
  optimizer.step();
}

torch::Tensor own(const ProcessGroup& group, const torch::Tensor& all) {
  return all.narrow(0, 2 * group.rank(), 2);
}

/// A bias with two names, one of which is never used.
struct SharedBiasNet : torch::nn::Module {
  torch::nn::Linear linear{nullptr};
  torch::Tensor bias;

  SharedBiasNet() {
    linear = register_module("linear", torch::nn::Linear(4, 5));
    bias = register_parameter("bias", linear->bias);
  }
};

/// Returns more than what it computed from its parameters.
struct TalkativeNet : torch::nn::Module {
  torch::nn::Linear linear{nullptr};

  TalkativeNet() {
    linear = register_module("linear", torch::nn::Linear(4, 2));
  }
  std::vector<torch::Tensor> forward(const torch::Tensor& x) {
    const auto fresh = torch::full({2}, 3.0, torch::requires_grad());
    return {linear(x) * fresh, x, torch::arange(3), fresh};
  }
};

using at::MemoryFormat;

/// Convolutions in the memory formats given.
torch::nn::Sequential convolutions(const std::vector<MemoryFormat>& formats) {
  torch::nn::Sequential net;
  for (const auto format : formats) {
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 4, 3).padding(1));
    layer->weight.set_data(layer->weight.detach().contiguous(format));
    net->push_back(layer);
  }
  return net;
}

void compare_layouts(
    const ProcessGroup& group,
    const std::vector<MemoryFormat>& formats,
    const ReducerOptions& options,
    bool set_to_none) {
  auto net = convolutions(formats);
  auto local = convolutions(formats);
  Reducer reducer(net, group, options);
  copy_parameters(*net, *local);
  for (int step = 0; step < 3; ++step) {
    net->zero_grad(set_to_none);
    local->zero_grad(set_to_none);
    torch::manual_seed(10 * step + group.rank());
    const auto input = torch::randn({2, 4, 5, 5});
    net->forward(input).pow(2).sum().backward();
    local->forward(input).pow(2).sum().backward();
    const auto expected = average(group, *local);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto parameter = net->parameters()[i];
      INFO("step " << step << ", parameter " << i);
      REQUIRE(parameter.grad().strides() == parameter.strides());
      REQUIRE(torch::allclose(parameter.grad(), expected[i], 1e-4, 1e-4));
    }
  }
}

} // namespace

RANKS_TEST("a large weight that is used twice has the gradient of both", 4) {
  for (const bool set_to_none : {true, false}) {
    for (const bool view : {true, false}) {
      auto weight = torch::ones({2048, 512}, torch::requires_grad()); // 4 MiB
      Reducer reducer(
          {weight}, group, ReducerOptions().gradient_as_bucket_view(view));
      torch::optim::SGD optimizer({weight}, 0.1);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad(set_to_none);
        const auto x = torch::full({2048, 512}, group.rank() + 1.0);
        (weight * x + x * weight).sum().backward();
        // 2 (1 + 2 + 3 + 4) / 4, exact in binary
        REQUIRE(weight.grad().eq(5).all().item<bool>());
      }
    }
  }
}

RANKS_TEST("without gradients nothing happens, with no_sync neither") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, ReducerOptions().record(true));
  for (int step = 0; step < 2; ++step) {
    {
      const torch::NoGradGuard no_grad;
      REQUIRE(!net->forward(batch(group, step, 7)).requires_grad());
      const auto guard = reducer.no_sync();
      net->forward(batch(group, step, 7));
    }
    {
      const auto guard = reducer.no_sync();
      net->forward(batch(group, step, 7));
    }
    REQUIRE(reducer.timeline().step == step);
    for (const auto& parameter : net->parameters()) {
      REQUIRE(!parameter.grad().defined());
    }
    net->forward(batch(group, step, 7)).sum().backward();
    REQUIRE(reducer.timeline().step == step + 1);
    REQUIRE(equal_on_all(group, net->wide->weight.grad()));
    reset_gradients(*net);
  }
}

RANKS_TEST("rank 0 may evaluate alone between steps, in either grad mode") {
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  Reducer reducer(net, group);
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    net->train();
    net->forward(batch(group, step, 4)).pow(3).sum().backward();
    REQUIRE(equal_on_all(group, net->parameters()[0].grad()));
    net->eval();
    for (int i = 0; group.rank() == 0 && i < 5; ++i) {
      const at::AutoGradMode mode(i % 2 == 0);
      net->forward(batch(group, 90 + i, 4));
    }
  }
}

RANKS_TEST("three steps, a checkpoint and three more equal six") {
  std::unique_ptr<TemporaryFolder> folder;
  if (group.rank() == 0) {
    folder = std::make_unique<TemporaryFolder>();
  }
  const auto path =
      group.broadcast(folder ? *folder / "net.safetensors" : std::string());
  auto straight = std::make_shared<BranchNet>();
  auto first = std::make_shared<BranchNet>();
  auto resumed = std::make_shared<BranchNet>();
  Reducer of_straight(straight, group);
  copy_parameters(*straight, *first);
  {
    Reducer reducer(first, group);
    for (int step = 0; step < 3; ++step) {
      train_step(*first, own(group, rows(group, step)));
    }
    save_checkpoint(path, *first, group);
  }
  load_checkpoint(path, *resumed, group);
  REQUIRE(resumed->stem->weight.equal(first->stem->weight));
  Reducer reducer(resumed, group);
  for (int step = 0; step < 6; ++step) {
    train_step(*straight, own(group, rows(group, step)));
  }
  REQUIRE(!nearly_equal(*straight, *resumed));
  for (int step = 3; step < 6; ++step) {
    train_step(*resumed, own(group, rows(group, step)));
  }
  REQUIRE(nearly_equal(*straight, *resumed));
  group.barrier(); // before the folder goes
}

RANKS_TEST("a new group and a new Reducer go on with the same net") {
  auto net = std::make_shared<BranchNet>();
  auto alone = std::make_shared<BranchNet>();
  torch::manual_seed(3);
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
        const auto all = rows(group, step);
        train_step(*net, own(group, all));
        train_step(*alone, all);
        REQUIRE(nearly_equal(*net, *alone));
      }
    }
    own_group.shutdown();
  }
}

RANKS_TEST("a layer without outputs has gradients without elements") {
  torch::nn::Linear only(10, 0);
  torch::nn::Linear stem(4, 10);
  {
    Reducer reducer(only, group); // its buckets are empty
    for (int step = 0; step < 3; ++step) {
      reset_gradients(*only);
      only->forward(torch::ones({2, 10})).sum().backward();
      REQUIRE(only->weight.grad().sizes() == at::IntArrayRef({0, 10}));
      REQUIRE(only->bias.grad().sizes() == at::IntArrayRef({0}));
    }
  }
  torch::nn::Sequential net(stem, only);
  Reducer reducer(net, group);
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    const auto x = stem->forward(torch::full({2, 4}, 1.0 * group.rank()));
    (only->forward(x).sum() + x.sum()).backward();
    REQUIRE(only->weight.grad().defined());
    REQUIRE(nearly_equal(stem->weight.grad(), torch::full({10, 4}, 2.0)));
  }
}

RANKS_TEST(
    "an aliased bias, unused by one of its names, and a loss in place",
    4) {
  for (const bool is_static : {false, true}) {
    auto net = std::make_shared<SharedBiasNet>();
    Reducer reducer(net, group, ReducerOptions().static_graph(is_static));
    REQUIRE(reducer.buckets()[0].size() == 2);
    for (int step = 0; step < 5; ++step) {
      reset_gradients(*net);
      const auto x = torch::full({2, 4}, group.rank() + 1.0);
      auto loss = net->linear->forward(x).sum();
      loss /= 8;
      loss.backward();
      REQUIRE(net->bias.grad().eq(0.25).all().item<bool>());
      REQUIRE(net->linear->weight.grad().eq(0.625).all().item<bool>());
    }
  }
}

RANKS_TEST("outputs without gradients, and tensors made in forward, are left") {
  for (const bool is_static : {false, true}) {
    auto net = std::make_shared<TalkativeNet>();
    Reducer reducer(
        net,
        group,
        ReducerOptions().static_graph(is_static).unmanaged_leaves(
            Reaction::kIgnore));
    for (int step = 0; step < 3; ++step) {
      reset_gradients(*net);
      const auto x = torch::full({2, 4}, 1.0 * group.rank());
      const auto outputs = net->forward(x);
      outputs[0].sum().backward();
      REQUIRE(outputs[1].is_same(x));
      REQUIRE(!outputs[1].requires_grad());
      REQUIRE(outputs[2].equal(torch::arange(3)));
      REQUIRE(
          nearly_equal(net->linear->weight.grad(), torch::full({2, 4}, 6.0)));
      // The leaf's gradient is each rank's own.
      const auto local = net->linear->forward(x).sum(0);
      REQUIRE(nearly_equal(outputs[3].grad(), local));
    }
  }
}

RANKS_TEST("gradients have their parameter's memory format") {
  const auto last = MemoryFormat::ChannelsLast;
  const auto first = MemoryFormat::Contiguous;
  const auto tiny = ReducerOptions().bucket_cap_mb(1e-6);
  for (const auto& formats : std::vector<std::vector<MemoryFormat>>{
           {first, first, first},
           {last, last, last},
           {first, last, first},
           {last, first, last}}) {
    for (const bool set_to_none : {true, false}) {
      compare_layouts(group, formats, {}, set_to_none);
      compare_layouts(group, formats, tiny, set_to_none);
      compare_layouts(
          group,
          formats,
          ReducerOptions().gradient_as_bucket_view(true),
          set_to_none);
    }
  }
}

RANKS_TEST("a tensor hook sees and may change this rank's own gradient") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group);
  weight.register_hook([&](const at::Tensor& grad) {
    REQUIRE(grad.eq(group.rank() + 1.0).all().item<bool>());
    return grad * 3;
  });
  for (int step = 0; step < 3; ++step) {
    weight.mutable_grad().reset();
    (weight * (group.rank() + 1.0)).sum().backward();
    REQUIRE(nearly_equal(weight.grad(), torch::full({2}, 6.0)));
  }
}

} // namespace ddp::test::python_models_test
