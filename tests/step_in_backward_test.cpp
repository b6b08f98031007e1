#include <tests/support/comm_hooks.h>
#include <tests/support/failures.h>
#include <tests/support/nets.h>

#include <ddp/ddp.h>

namespace ddp::test::step_in_backward_test {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;

using Make =
    std::function<std::unique_ptr<Optimizer>(const torch::nn::Module&)>;

/// Each parameter group has different options.
template <typename O, typename Options>
Make maker(Options options) {
  return [options](const torch::nn::Module& net) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    double rate = 0.01;
    for (const auto& parameter : net.parameters()) {
      auto own = std::make_unique<Options>(options);
      own->lr(rate *= 1.1);
      groups.emplace_back(std::vector<at::Tensor>{parameter}, std::move(own));
    }
    return std::make_unique<O>(groups, options);
  };
}

std::vector<Make> makers() {
  return {
      maker<torch::optim::SGD>(
          SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true)),
      maker<torch::optim::AdamW>(AdamWOptions(0.01)),
      maker<Adam>(AdamOptions(0.01)),
      maker<FusedSGD>(SGDOptions(0.1).momentum(0.9)),
      maker<FusedAdam>(AdamOptions(0.01)),
      maker<FusedAdamW>(AdamWOptions(0.01)),
  };
}

template <typename Net>
struct Run {
  Run(const ProcessGroup& group,
      const Make& make,
      bool in_backward,
      const ReducerOptions& options = {})
      : steps_itself(!in_backward),
        reducer(net, group, ReducerOptions(options).share_communicator(true)),
        optimizer(make(*net)) {
    if (in_backward) {
      reducer.step_in_backward(*optimizer);
    }
  }

  template <typename... Inputs>
  void train(const Inputs&... inputs) {
    optimizer->zero_grad();
    net->forward(inputs...).pow(2).mean().backward();
    step();
  }

  void step() {
    if (steps_itself) {
      optimizer->step();
    }
  }

  bool has_bits_of(const Run& other) const {
    return same_parameters(*net, *other.net);
  }

  const bool steps_itself;
  std::shared_ptr<Net> net = [] {
    torch::manual_seed(3);
    return std::make_shared<Net>();
  }();
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
};

RANKS_TEST("a step in backward has the bits of one after it", {3, 4}) {
  for (const auto& make : makers()) {
    for (const auto& options :
         {ReducerOptions().bucket_cap_mb(0.1),
          ReducerOptions().bucket_cap_mb(0.1).check_finite(true)}) {
      Run<UnevenNet> inside(group, make, true, options);
      Run<UnevenNet> after(group, make, false, options);
      for (int64_t step = 0; step < 4; ++step) {
        inside.train(batch(group, step, 7));
        after.train(batch(group, step, 7));
        REQUIRE(inside.has_bits_of(after));
      }
      REQUIRE(inside.reducer.buckets().size() > 1);
    }
  }
}

RANKS_TEST("an optimizer of some parameters steps in backward", {3, 4}) {
  for (const auto& make : makers()) {
    const Make of_wide = [&make](const torch::nn::Module& net) {
      return make(*net.children()[1]);
    };
    const auto options = ReducerOptions().bucket_cap_mb(0.1);
    Run<UnevenNet> inside(group, of_wide, true, options);
    Run<UnevenNet> after(group, of_wide, false, options);
    const auto start = inside.net->wide->bias.detach().clone();
    for (int64_t step = 0; step < 4; ++step) {
      inside.train(batch(group, step, 7));
      after.train(batch(group, step, 7));
      REQUIRE(inside.has_bits_of(after));
      // These gradients accumulate: no optimizer clears them.
      REQUIRE(inside.net->first->weight.grad().equal(
          after.net->first->weight.grad()));
    }
    REQUIRE(!inside.net->wide->bias.equal(start));
  }
}

RANKS_TEST("a step in backward where ranks use different parameters") {
  for (const auto& make : makers()) {
    Run<BranchNet> inside(group, make, true);
    Run<BranchNet> after(group, make, false);
    for (int64_t step = 0; step < 6; ++step) {
      const bool left = step < 3 ? group.rank() == 0 : step % 2 == 0;
      inside.train(batch(group, step, 4), left);
      after.train(batch(group, step, 4), left);
      REQUIRE(inside.has_bits_of(after));
    }
  }
}

RANKS_TEST("a training that steps in backward resumes from its state") {
  for (const auto& make : makers()) {
    Run<UnevenNet> whole(group, make, true);
    Run<UnevenNet> resumed(group, make, true);
    TrainingState from;
    TrainingState to;
    from.add("net", whole.net).add("optimizer", *whole.optimizer);
    from.add("reducer", whole.reducer);
    to.add("net", resumed.net).add("optimizer", *resumed.optimizer);
    to.add("reducer", resumed.reducer);
    whole.train(batch(group, 0, 7));
    whole.train(batch(group, 1, 7));
    to.load_state_dict(from.state_dict(group).deepcopy(), group);
    for (int64_t step = 2; step < 5; ++step) {
      whole.train(batch(group, step, 7));
      resumed.train(batch(group, step, 7));
      REQUIRE(whole.has_bits_of(resumed));
    }
  }
}

TEST_CASE("a group of one steps in backward too") {
  const ProcessGroup alone;
  for (const auto& make : makers()) {
    Run<UnevenNet> inside(alone, make, true);
    Run<UnevenNet> after(alone, make, false);
    DistributedDataParallel<UnevenNet> wrapped(
        std::make_shared<UnevenNet>(), alone);
    copy_parameters(*inside.net, *wrapped);
    const auto wrapped_optimizer = make(*wrapped);
    wrapped->step_in_backward(*wrapped_optimizer);
    for (int64_t step = 0; step < 3; ++step) {
      const auto input = batch(alone, step, 7);
      inside.train(input);
      after.train(input);
      CHECK(inside.has_bits_of(after));
      wrapped_optimizer->zero_grad();
      wrapped->forward(input).pow(2).mean().backward();
      CHECK(wrapped->parameters()[2].equal(inside.net->parameters()[2]));
    }
    const auto before = inside.net->last->weight.detach().clone();
    {
      const auto guard = inside.reducer.no_sync();
      inside.net->forward(batch(alone, 9, 7)).pow(2).mean().backward();
    }
    CHECK(inside.net->last->weight.equal(before));
  }
}

TEST_CASE("alone, a backward that throws is forgotten") {
  const ProcessGroup alone;
  Run<UnevenNet> inside(alone, makers().front(), true);
  const auto before = inside.net->last->weight.detach().clone();
  auto loss = inside.net->forward(batch(alone, 0, 7)).pow(2).mean();
  bool throws = true;
  inside.net->first->weight.register_hook(
      [&throws](const at::Tensor& gradient) -> at::Tensor {
        TORCH_CHECK(!throws, "on purpose");
        return gradient;
      });
  CHECK_THROWS_WITH(loss.backward(), Has("on purpose"));
  CHECK(inside.net->last->weight.equal(before));
  throws = false;
  inside.train(batch(alone, 0, 7));
  CHECK(!inside.net->last->weight.equal(before));
}

RANKS_TEST("a reduction that fails gives the optimizer its parameters back") {
  int runs = 0;
  const auto hook = custom([&](const GradBucket& bucket, const ProcessGroup&) {
    auto future = completed(bucket.buffer);
    if (++runs == 3) { // one bucket, then several: the first one is stepped
      future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      future->setError(std::make_exception_ptr(std::runtime_error("no sum")));
    }
    return future;
  });
  UnevenNet net;
  Reducer reducer(net, group, with_hook(hook).bucket_cap_mb(1e-3));
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  reducer.step_in_backward(optimizer);
  const auto backward = [&] {
    net.forward(torch::ones({2, 7})).sum().backward();
  };
  backward();
  REQUIRE_THROWS_WITH(backward(), Has("no sum"));
  const auto& parameters = optimizer.param_groups()[0].params();
  REQUIRE(parameters.size() == net.parameters().size());
}

TEST_CASE("an optimizer that cannot step in backward is refused") {
  const ProcessGroup alone;
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, alone);
  torch::optim::LBFGS at_once(net->parameters());
  CHECK_THROWS_WITH(reducer.step_in_backward(at_once), Has("LBFGS"));
  torch::optim::SGD others(UnevenNet().parameters(), 0.1);
  CHECK_THROWS_WITH(
      reducer.step_in_backward(others),
      Has("none of the Reducer's parameters"));
  UnevenNet other;
  torch::optim::SGD both(net->parameters(), 0.1);
  both.add_param_group(torch::optim::OptimizerParamGroup(other.parameters()));
  const std::string reason = "the optimizer has parameters of another Reducer";
  reducer.step_in_backward(both);
  const Reducer second(other.parameters(), alone);
  CHECK_THROWS_WITH(
      net->forward(torch::ones({2, 7})).sum().backward(), Has(reason));
  CHECK_THROWS_WITH(reducer.step_in_backward(both), Has(reason));
}

TEST_CASE("a second optimizer is refused as long as the Reducer exists") {
  const ProcessGroup alone;
  auto net = std::make_shared<UnevenNet>();
  torch::optim::SGD head(net->last->parameters(), 0.1);
  torch::optim::SGD body(net->first->parameters(), 0.1);
  {
    Reducer reducer(net, alone);
    reducer.step_in_backward(head);
    reducer.step_in_backward(head); // changes nothing
    CHECK_THROWS_WITH(
        reducer.step_in_backward(body),
        Has("already steps another optimizer", "construct a Reducer for each"));
    const auto before = net->last->bias.detach().clone();
    net->forward(torch::ones({2, 7})).sum().backward();
    CHECK(!net->last->bias.equal(before));
  }
  Reducer reducer(net, alone);
  CHECK_NOTHROW(reducer.step_in_backward(body));
}

TEST_CASE("what comes too late for a step in backward is refused") {
  const ProcessGroup alone;
  auto net = std::make_shared<UnevenNet>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(1));
  GradScaler off(GradScalerOptions().enabled(false));
  {
    Reducer reducer(net, alone);
    reducer.step_in_backward(optimizer);
    scaler.scale(net->forward(torch::ones({2, 7})).sum()).backward();
    CHECK_THROWS_WITH(scaler.step(optimizer), Has("step_in_backward"));
    CHECK_THROWS_WITH(off.step(optimizer), Has("step_in_backward"));
    CHECK_THROWS_WITH(reducer.clip_grad_norm(1), Has("step_in_backward"));
  }
  net->zero_grad();
  scaler.scale(net->forward(torch::ones({2, 7})).sum()).backward();
  CHECK(scaler.step(optimizer)); // without the Reducer
}

RANKS_TEST("an optimizer that differs between ranks is refused") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  torch::optim::SGD optimizer(net->parameters(), group.rank() == 2 ? 0.2 : 0.1);
  const auto act = [&] {
    reducer.step_in_backward(optimizer);
    net->forward(torch::ones({2, 7})).sum().backward();
  };
  REQUIRE_THROWS_WITH(
      act(),
      Has("step_in_backward differs between ranks: ranks 0 and "
          "1: torch::optim::SGD with learning rates 0.1; rank "
          "2: torch::optim::SGD with learning rates 0.2. "));
  meet_at_store(group, {"0", "1", "2"});
}

} // namespace ddp::test::step_in_backward_test
