// The memory of gradients, and the allocations of a step.
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

#include <sys/resource.h>

namespace ddp::test::gradient_memory_test {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

RANKS_TEST("gradients lie where they lay, also where zero_grad drops them") {
  const Twins<UnevenNet> twins(group);
  torch::optim::SGD optimizer(twins.net->parameters(), 0.1);
  std::vector<const void*> memory;
  for (int64_t step = 0; step < 6; ++step) {
    const auto input = batch(group, step, 7);
    optimizer.zero_grad();
    reset_gradients(*twins.local);
    twins.backward([&](auto& net) { return net.forward(input).pow(2).mean(); });
    twins.check();
    if (step == 1) { // the buckets were rebuilt after the first
      memory = memory_of_gradients(*twins.net);
    }
    REQUIRE((step < 1 || memory_of_gradients(*twins.net) == memory));
  }
}

RANKS_TEST("a gradient that a program moves away is reduced") {
  const auto weight = torch::ones({3}, torch::requires_grad(true));
  Reducer reducer({weight}, group);
  const double mean = static_cast<double>(group.size() + 1) / 2;
  for (const auto* between : {"reset", "zero", "keep"}) {
    for (int64_t step = 0; step < 4; ++step) {
      auto& gradient = weight.mutable_grad();
      if (std::string(between) == "reset") {
        gradient.reset();
      } else if (gradient.defined() && std::string(between) == "zero") {
        gradient.zero_();
      }
      const auto before =
          gradient.defined() ? gradient.clone() : torch::zeros({3});
      (weight * (group.rank() + 1)).sum().backward();
      REQUIRE(weight.grad().allclose(before + mean));
      weight.grad().set_data(weight.grad() * 0.5);
      REQUIRE(reducer.clip_grad_norm(1).item<double>() > 1);
      REQUIRE(std::abs(weight.grad().norm().item<double>() - 1) < 1e-4);
    }
  }
}

RANKS_TEST("the memory of earlier buckets is freed") {
  const auto weight = torch::ones({3}, torch::requires_grad(true));
  Reducer reducer({weight}, group);
  const auto first_layout = reducer.state_dict();
  (weight * group.rank()).sum().backward();
  (weight * group.rank()).sum().backward(); // in the final buckets
  const auto memory = weight.grad().storage().getWeakStorageImpl();
  weight.mutable_grad().reset();
  REQUIRE(!memory.expired());
  reducer.load_state_dict(first_layout);
  while (!memory.expired()) { // Gloo's thread may still hold the last bucket.
    std::this_thread::yield();
  }
}

RANKS_TEST("a gradient that the next pass uses and replaces is an error") {
  const auto a = torch::ones({3}, torch::requires_grad(true));
  const auto b = torch::ones({3}, torch::requires_grad(true));
  Reducer reducer({a, b}, group);
  (a + b).sum().backward();
  (a + b).sum().backward(); // in the final buckets
  const auto earlier = a.grad();
  a.mutable_grad().reset();
  const auto user = (b * earlier).sum(); // later in the backward pass
  REQUIRE_THROWS_WITH(
      (user + a.sum()).backward(), Has("modified by an inplace operation"));
}

RANKS_TEST("a Reducer that was constructed in inference mode trains") {
  const auto weight = torch::ones({3}, torch::requires_grad(true));
  std::unique_ptr<Reducer> reducer;
  {
    const c10::InferenceMode inference;
    reducer = std::make_unique<Reducer>(std::vector<at::Tensor>{weight}, group);
  }
  (weight * (group.rank() + 1)).sum().backward();
  REQUIRE(weight.grad().allclose(torch::full({3}, (group.size() + 1) / 2.0)));
}

RANKS_TEST("a large gradient is scaled as a small one, to the last bit") {
  // Sizes at which the copying method changes, and unaligned offsets.
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf}) {
    std::vector<at::Tensor> parameters;
    for (const int64_t size : {3, 32769, 1, 1048579, 2097153}) {
      parameters.push_back(
          torch::zeros({size}, torch::dtype(dtype).requires_grad(true)));
    }
    Reducer reducer(parameters, group);
    const auto factor = 1.0 / static_cast<double>(group.size());
    for (int64_t step = 0; step < 3; ++step) {
      torch::manual_seed(step);
      for (auto& parameter : parameters) {
        parameter.mutable_grad().reset();
      }
      std::vector<at::Tensor> weights;
      auto loss = torch::zeros({}, dtype);
      for (const auto& parameter : parameters) {
        weights.push_back(torch::randn(parameter.sizes()).to(dtype));
        // Only one rank has a gradient that is not zero, so no sum rounds.
        const bool mine = step % group.size() == group.rank();
        loss = loss + (parameter * weights.back() * mine).sum();
      }
      loss.backward();
      for (size_t i = 0; i < parameters.size(); ++i) {
        REQUIRE(parameters[i].grad().equal(weights[i] * factor));
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers replace the allocator.
RANKS_TEST(
    "a step asks the system for no fresh pages",
    1,
    ProcessGroupOptions().backend("gloo").rank(0).world_size(1)) {
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(1280, 1280)); // 6.6 MB
  }
  Reducer reducer(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  const auto input = torch::randn({4, 1280});
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      net->forward(input).pow(2).mean().backward();
      optimizer.step();
    }
  };
  train(5);
  const auto before = page_faults();
  train(10);
  // A step's gradients are 6400 pages. One gradient may be allocated and freed.
  REQUIRE((page_faults() - before) / 10 < 6400 / 2);
}
#endif

} // namespace ddp::test::gradient_memory_test
