// A program that runs alone gets the same errors and warnings as several ranks.
#include <tests/support/catch.h>
#include <tests/support/nets.h>

#include <ddp/comm_hooks/default_hooks.h>
#include <ddp/reducer.h>
#include <ddp/reducer/core/gradient_hook.h>

namespace ddp::test::group_of_one_test {

using torch::nn::Linear;

struct Net : LayeredNet {
  Linear first = linear("first", 4, 3);
  Linear second = linear("second", 3, 2);
  std::vector<Linear> forgotten;

  void backward(torch::ScalarType dtype = torch::kFloat) {
    zero_grad();
    auto x = second->forward(first->forward(torch::ones({2, 4}, dtype)));
    for (auto& layer : forgotten) {
      x = layer->forward(x);
    }
    x.sum().backward();
  }
};

TEST_CASE("a group that was moved from is the same group") {
  ProcessGroup group;
  ProcessGroup other(std::move(group));
  CHECK(group.size() == 1);
  const ProcessGroup last = std::move(other);
  CHECK(other.rank() == last.rank());
}

TEST_CASE("alone, a forgotten module is reported") {
  Net net;
  net.forgotten.emplace_back(2, 2);
  Reducer reducer(net, ProcessGroup());
  CHECK(warnings_of([&] { net.backward(); }).empty()); // it may be an input
  const auto texts = warnings_of([&] { net.backward(); });
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], Has("belong to no Reducer"));
}

TEST_CASE("alone, ProcessGroup() is the group, and nothing is forgotten") {
  const auto group =
      init_process_group(ProcessGroupOptions().rank(0).world_size(1));
  Net net;
  CHECK(warnings_of([&] { Reducer reducer(net, ProcessGroup()); }).empty());
}

TEST_CASE("alone, a converted module is an error") {
  Net net;
  Reducer reducer(net, ProcessGroup());
  net.to(torch::kDouble);
  CHECK_THROWS_WITH(
      net.backward(torch::kDouble),
      Has("was Float",
          "move or convert the module before constructing the Reducer"));
}

TEST_CASE("alone, a replaced layer is an error") {
  Net net;
  Reducer reducer(net, ProcessGroup());
  net.second = net.replace_module("second", Linear(3, 2));
  const auto run = [&] { warnings_of([&] { net.backward(); }); };
  CHECK_THROWS_WITH(run(), Has("no longer belongs to the Reducer's module"));
}

TEST_CASE("alone, two Reducers on one net are an error") {
  Net net;
  Reducer reducer(net, ProcessGroup());
  CHECK_THROWS_WITH(
      Reducer(net, ProcessGroup()), Has("already belongs to another Reducer"));
}

TEST_CASE("alone, a Reducer that ends before it reduced anything is missed") {
  Net net;
  { Reducer local(net, ProcessGroup()); }
  const auto texts = warnings_of([&] { net.backward(); });
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], Has("its Reducer was destroyed before"));
}

TEST_CASE("alone, a Reducer whose backward threw is replaced without words") {
  Net net;
  auto reducer = std::make_unique<Reducer>(net, ProcessGroup());
  net.first->weight.register_hook([](const at::Tensor&) -> at::Tensor {
    static int calls = 0;
    TORCH_CHECK(++calls > 1, "once");
    return {};
  });
  CHECK_THROWS_WITH(net.backward(), Has("once"));
  reducer = std::make_unique<Reducer>(net, ProcessGroup());
  CHECK(warnings_of([&] { net.backward(); }).empty());
}

TEST_CASE("alone, backwards that are all under no_sync are told of") {
  const auto connected = init_process_group(
      ProcessGroupOptions().backend("gloo").rank(0).world_size(1));
  for (const auto& group : {ProcessGroup(), connected}) {
    Net net;
    const auto texts = [&](bool reduces) {
      const auto train = [&] {
        Reducer reducer(net, group);
        auto guard = reducer.no_sync();
        net.backward();
        guard.reset();
        if (reduces) {
          net.backward();
        }
      };
      return c10::Join("", warnings_of(train));
    };
    const Has told("was each backward pass under no_sync()?");
    CHECK_THAT(texts(false), told);
    CHECK_THAT(texts(true), !told);
  }
}

TEST_CASE("alone, finish_backward() steps what passes under no_sync left") {
  Net net;
  Reducer reducer(net, ProcessGroup());
  torch::optim::SGD optimizer(net.second->parameters(), 0.5);
  reducer.step_in_backward(optimizer);
  const auto start = net.second->bias.detach().clone();
  for (int step = 0; step < 4; ++step) {
    auto guard = step % 2 == 0 ? reducer.no_sync() : nullptr;
    net.backward(); // the gradient of each bias is 2
    guard.reset();
    reducer.finish_backward();
    CHECK(
        torch::allclose(start - net.second->bias, torch::full({2}, step + 1.)));
  }
}

TEST_CASE("alone, finish_backward() that comes late is refused") {
  Net net;
  Reducer reducer(net, ProcessGroup());
  for (int step = 0; step < 3; ++step) {
    net.backward();
  }
  CHECK_THROWS_WITH(reducer.finish_backward(), Has("including the first"));
}

TEST_CASE("alone, check_finite finds what is not finite in any step") {
  Net net;
  Reducer reducer(net, ProcessGroup(), ReducerOptions().check_finite(true));
  for (int step = 0; step < 4; ++step) {
    net.backward();
  }
  const auto fill = [&](float value) {
    const torch::NoGradGuard no_grad;
    net.second->weight.fill_(value);
  };
  fill(std::numeric_limits<float>::infinity());
  CHECK_THROWS_WITH(net.backward(), Has("first."));
  fill(1);
  net.first->zero_grad();
  net.second->zero_grad();
  CHECK_NOTHROW(net.backward());
  fill(std::numeric_limits<float>::infinity());
  CHECK_THROWS_WITH(net.backward(), Has("first."));
  Reducer anew(net, ProcessGroup()); // the first one is no longer usable
  CHECK_NOTHROW(net.backward());
}

TEST_CASE("alone, nothing is looked at after the second backward") {
  Net net;
  const auto options = ReducerOptions().comm_hook(fp16_compress_hook());
  Reducer reducer(net, ProcessGroup(), options);
  const auto looks = [&] {
    return detail::gradient_listener(net.first->weight) != nullptr;
  };
  net.backward();
  {
    const auto guard = reducer.no_sync();
    net.backward(); // does not count
  }
  CHECK(looks());
  net.backward();
  CHECK_FALSE(looks());
  const auto mine = net.first->weight.grad().clone();
  net.backward();
  CHECK(net.first->weight.grad().equal(mine));
  // The first Reducer has completed its checks.
  Reducer another(net, ProcessGroup(), options);
  CHECK(looks());
}

TEST_CASE("alone, the leaves of a Reducer that no longer looks are known") {
  Linear critic(2, 2);
  auto of_critic = std::make_unique<Reducer>(critic, ProcessGroup());
  for (int pass = 0; pass < 2; ++pass) {
    critic->forward(torch::ones({1, 2})).sum().backward();
  }
  Net actor;
  actor.forgotten.push_back(critic);
  const auto train_actor = [&] {
    Reducer reducer(actor, ProcessGroup());
    actor.backward();
    actor.backward();
  };
  CHECK(warnings_of(train_actor).empty());
  of_critic.reset();
  CHECK(warnings_of(train_actor).size() == 1);
}

} // namespace ddp::test::group_of_one_test
