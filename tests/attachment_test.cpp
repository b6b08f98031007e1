#include <tests/support/failures.h>
#include <tests/support/grouped_digits.h>
#include <tests/support/nets.h>

#include <ddp/reducer.h>
#include <torch/script.h>

namespace ddp::test::attachment_test {

/// A backward whose gradients differ between ranks.
void backward(UnevenNet& net, const ProcessGroup& group) {
  const auto dtype = net.first->weight.scalar_type();
  net.forward(batch(group, 3, 7).to(dtype)).pow(2).sum().backward();
}

RANKS_TEST("a module that is converted after attachment is noticed") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  backward(*net, group);
  group.barrier(); // late ranks would get the others' errors
  if (group.rank() == 0) { // or keep the gradient, which stays float
    reset_gradients(*net);
  }
  net->to(torch::kDouble);
  REQUIRE_THROWS_WITH(
      backward(*net, group),
      Has("last.bias was Float [3]",
          "now it is Double [",
          "convert the module before"));
}

RANKS_TEST("set_data and load keep the hooks") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  net->save(out);
  out.save_to(file);
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    if (step == 1) {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) {
        parameter.set_data(parameter.clone());
      }
    } else if (step == 2) {
      torch::serialize::InputArchive in;
      in.load_from(file);
      net->load(in);
    }
    backward(*net, group);
    REQUIRE(equal_on_all(group, net->wide->weight.grad()));
  }
}

void check_unfreezing(const ProcessGroup& group, int unfreezing) {
  auto net = std::make_shared<UnevenNet>();
  net->wide->weight.set_requires_grad(false);
  Reducer reducer(net, group);
  backward(*net, group);
  net->wide->weight.set_requires_grad(group.rank() == unfreezing);
  const auto two_steps = [&] {
    backward(*net, group); // others may have the same collectives
    backward(*net, group);
  };
  REQUIRE_THROWS_WITH(
      two_steps(),
      Has("unfrozen",
          "wide.weight",
          "rank " + std::to_string(unfreezing) + " has "));
  meet_at_store(group, {"0", "1", "2"});
}

TEST_CASE(
    "unfreezing on one rank only is an error on all, before the timeout") {
  for (const int unfreezing : {0, 1}) {
    ranks(3, [unfreezing](ProcessGroup group) {
      check_unfreezing(group, unfreezing);
    });
  }
}

RANKS_TEST("unfreezing on some ranks is an error for one without inputs, too") {
  auto net = std::make_shared<UnevenNet>();
  net->wide->weight.set_requires_grad(false);
  Reducer reducer(net, group);
  backward(*net, group);
  net->wide->weight.set_requires_grad(group.rank() != 2);
  const auto train = [&] {
    auto join = reducer.join();
    if (group.rank() != 2) {
      backward(*net, group);
    }
  };
  REQUIRE_THROWS_WITH(train(), Has("unfrozen", "wide.weight", "unlike rank 2"));
  meet_at_store(group, {"0", "1", "2"});
}

RANKS_TEST("unfreezing on one rank is an error where a locale groups digits") {
  group_digits();
  check_unfreezing(group, 1);
}

RANKS_TEST("a Reducer that failed may be replaced") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  const auto hook = net->first->weight.register_hook(
      [](at::Tensor) -> at::Tensor { TORCH_CHECK(false, "on purpose"); });
  REQUIRE_THROWS_WITH(backward(*net, group), Has("on purpose"));
  net->first->weight.remove_hook(hook);
  REQUIRE_THROWS_WITH(backward(*net, group), Has("construct a new Reducer"));
  reducer = Reducer(net, group);
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    backward(*net, group);
    REQUIRE(equal_on_all(group, net->wide->weight.grad()));
  }
}

TEST_CASE("a Reducer that was moved from says so") {
  const ProcessGroup alone;
  Reducer reducer({torch::ones({2}, torch::requires_grad())}, alone);
  const Reducer other(std::move(reducer));
  REQUIRE_THROWS_WITH(reducer.no_sync(), Has("moved from"));
}

RANKS_TEST("parameters and buffers may be ignored") {
  torch::manual_seed(group.rank());
  auto net = std::make_shared<BranchNet>();
  net->register_parameter("own", torch::full({2}, 1.0 * group.rank()));
  net->register_buffer("mine", torch::full({2}, group.rank()));
  net->register_buffer("ours", torch::full({2}, group.rank()));
  Reducer reducer(
      net,
      group,
      ReducerOptions()
          .parameters_to_ignore({"own", "mine", "left.bias"})
          .unmanaged_leaves(Severity::kError)); // these are not unmanaged
  auto parameters = net->named_parameters();
  auto buffers = net->named_buffers();
  REQUIRE(parameters["own"].eq(group.rank()).all().item<bool>());
  REQUIRE(buffers["mine"].eq(group.rank()).all().item<bool>());
  REQUIRE(buffers["ours"].eq(0).all().item<bool>());
  REQUIRE(!equal_on_all(group, parameters["left.bias"]));
  REQUIRE(equal_on_all(group, parameters["left.weight"]));
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    ((net->forward(batch(group, 0, 4), true) + parameters["own"]) *
     group.rank())
        .sum()
        .backward();
    // Local: five rows times the rank.
    const auto local = torch::full({2}, 5.0 * group.rank());
    REQUIRE(parameters["own"].grad().equal(local));
    REQUIRE(parameters["left.bias"].grad().equal(local));
    REQUIRE(equal_on_all(group, parameters["left.weight"].grad()));
  }
}

RANKS_TEST("a sparse buffer is refused by name, unless it stays local") {
  auto net = std::make_shared<BranchNet>();
  net->register_buffer("edges", torch::eye(2).to_sparse());
  REQUIRE_THROWS_WITH(
      Reducer(net, group), Has("the buffer edges has the layout Sparse"));
  for (const auto& options :
       {ReducerOptions().broadcast_buffers(false),
        ReducerOptions().parameters_to_ignore({"edges"})}) {
    Reducer reducer(net, group, options);
    reset_gradients(*net);
    net->forward(batch(group, 0, 4), true).sum().backward();
    REQUIRE(equal_on_all(group, net->left->weight.grad()));
  }
}

RANKS_TEST("buffers become rank 0's at the end of backward") {
  for (const bool broadcast : {true, false}) {
    torch::nn::Sequential net(
        torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
    Reducer reducer(net, group, ReducerOptions().broadcast_buffers(broadcast));
    const auto mean = net->named_buffers()["1.running_mean"];
    for (int step = 0; step < 3; ++step) {
      net->train();
      const auto output = net->forward(batch(group, step, 4));
      REQUIRE(!equal_on_all(group, mean));
      {
        const auto guard = reducer.no_sync();
        net->forward(batch(group, step, 4)).sum().backward();
      }
      REQUIRE(!equal_on_all(group, mean));
      output.pow(2).sum().backward();
      REQUIRE(equal_on_all(group, mean) == broadcast);
      net->eval();
      if (group.rank() == 0) { // alone: evaluation does not communicate
        net->forward(batch(group, step, 4));
      }
    }
  }
}

RANKS_TEST("a TorchScript module attaches") {
  torch::jit::Module net("net");
  net.register_parameter(
      "weight", torch::full({2}, 1.0 + group.rank()).requires_grad_(), false);
  net.register_buffer("count", torch::full({1}, group.rank()));
  net.define("def forward(self, x):\n  return self.weight * x\n");
  Reducer reducer(net, group);
  auto weight = net.attr("weight").toTensor();
  REQUIRE(weight.eq(1).all().item<bool>());
  REQUIRE(net.attr("count").toTensor().item<int64_t>() == 0);
  for (int step = 0; step < 4; ++step) { // TorchScript profiles the first two
    weight.mutable_grad().reset();
    const auto x = torch::full({2}, 1.0 * group.rank());
    net.forward({x}).toTensor().sum().backward();
    REQUIRE(weight.grad().eq(1).all().item<bool>());
  }
}

RANKS_TEST("named parameters attach, and messages use the names") {
  auto net = std::make_shared<BranchNet>();
  if (group.rank() == 1) {
    net->left->weight.set_data(torch::zeros({3, 8}));
  }
  REQUIRE_THROWS_WITH(
      Reducer(net->named_parameters(), group), Has("left.weight Float [3, 8]"));
  auto good = std::make_shared<BranchNet>();
  Reducer reducer(good->named_parameters(), group);
  good->forward(batch(group, 0, 4), true).sum().backward();
  REQUIRE(equal_on_all(group, good->stem->weight.grad()));
}

RANKS_TEST("leaves that nobody manages are reported in the first steps") {
  auto net = std::make_shared<BranchNet>();
  std::vector<torch::nn::Linear> forgotten{torch::nn::Linear(2, 2)};
  const auto train = [&](Reducer& reducer) {
    for (int step = 0; step < 2; ++step) {
      auto x = net->forward(batch(group, step, 4), true);
      forgotten[0]->forward(x).sum().backward();
    }
    (void)reducer;
  };
  {
    Reducer reducer(
        net, group, ReducerOptions().unmanaged_leaves(Severity::kError));
    REQUIRE_THROWS_WITH(
        train(reducer),
        Has("Float [2, 2]", "AddmmBackward", "register_module"));
  }
  Reducer declared(
      net,
      group,
      ReducerOptions()
          .unmanaged_leaves(Severity::kError)
          .known_leaves(forgotten[0]->parameters()));
  train(declared);
}

} // namespace ddp::test::attachment_test
