#include <tests/support/comm_hooks.h>
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

namespace ddp::test::comm_hook_test {

/// A program's own mean: all-reduces, and divides after that.
struct MeanHook : CommHook {
  Future run(const GradBucket& bucket, const ProcessGroup& group) override {
    return sum(bucket.buffer, group)
        ->then(
            [buffer = bucket.buffer, size = group.size()](
                c10::ivalue::Future& /*future*/) -> c10::IValue {
              const at::NoGradGuard no_grad; // the communicating thread
              return at::Tensor(buffer).div_(size);
            },
            c10::TensorType::get());
  }
};

/// Sends half as many bytes, and returns a new tensor.
struct HalfHook : CommHook {
  Future run(const GradBucket& bucket, const ProcessGroup& group) override {
    auto half = (bucket.buffer / group.size()).to(torch::kHalf);
    return sum(half, group)
        ->then(
            [half, dtype = bucket.buffer.scalar_type()](
                c10::ivalue::Future& /*future*/) -> c10::IValue {
              return half.to(dtype);
            },
            c10::TensorType::get());
  }
};

/// Records its calls, and keeps each rank's gradients unchanged.
struct NotingHook : CommHook {
  explicit NotingHook(bool scaled = false) : scaled_(scaled) {}

  bool takes_scaled_gradients() const override {
    return scaled_;
  }
  Future run(const GradBucket& bucket, const ProcessGroup&) override {
    calls.push_back(bucket);
    contents.push_back(bucket.buffer.clone());
    return completed(bucket.buffer);
  }

  std::vector<GradBucket> calls;
  std::vector<at::Tensor> contents;

 private:
  bool scaled_;
};

/// Whether a hook's results equal the default's bit for bit, over steps with
/// rebuilt buckets, gradients that are kept, and no_sync.
void compare_with_default(
    const ProcessGroup& group,
    const std::shared_ptr<CommHook>& hook) {
  torch::manual_seed(2);
  auto net = std::make_shared<UnevenNet>();
  auto other = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  Reducer hooked(other, group, with_hook(hook));
  copy_parameters(*net, *other);
  for (int step = 0; step < 6; ++step) {
    const auto input = batch(group, step, 7);
    const auto backward = [&](UnevenNet& n, Reducer& r) {
      auto guard = std::make_optional(r.no_sync());
      if (step % 3 != 1) {
        guard.reset();
      }
      n.zero_grad(/*set_to_none=*/step < 3);
      n.forward(input).pow(2).mean().backward();
    };
    backward(*net, reducer);
    backward(*other, hooked);
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      REQUIRE(net->parameters()[i].grad().equal(other->parameters()[i].grad()));
    }
    REQUIRE(equal_on_all(group, net->wide->weight.grad()) == (step % 3 != 1));
  }
}

/// Requires that the recorded calls are those for `buckets`, in order.
void check_calls(
    int64_t iteration,
    const std::vector<GradBucket>& calls,
    const std::vector<BucketIndices>& buckets,
    const std::vector<at::Tensor>& parameters) {
  REQUIRE(calls.size() == buckets.size());
  for (size_t b = 0; b < calls.size(); ++b) {
    const auto& call = calls[b];
    REQUIRE(call.iteration == iteration);
    REQUIRE(call.index == b);
    REQUIRE(call.is_last == (b + 1 == calls.size()));
    REQUIRE(call.buffer.dim() == 1);
    REQUIRE(call.gradients.size() == buckets[b].size());
    REQUIRE(call.parameters.size() == buckets[b].size());
    int64_t elements = 0;
    for (size_t k = 0; k < buckets[b].size(); ++k) {
      const auto& parameter = parameters[buckets[b][k]];
      const auto& gradient = call.gradients[k];
      REQUIRE(call.parameters[k].is_same(parameter));
      REQUIRE(gradient.sizes() == parameter.sizes());
      REQUIRE(gradient.scalar_type() == call.buffer.scalar_type());
      REQUIRE(
          gradient.const_data_ptr() ==
          call.buffer.narrow(0, elements, gradient.numel()).const_data_ptr());
      elements += gradient.numel();
    }
    REQUIRE(call.buffer.numel() == elements);
  }
}

RANKS_TEST("a hook that all-reduces and divides gives the default's bits", 4) {
  // Dividing by four, before the sum or after it, rounds nothing.
  compare_with_default(group, std::make_shared<MeanHook>());
}

RANKS_TEST(
    "the default hook, passed by the program, gives the default's bits") {
  compare_with_default(group, std::make_shared<AllReduceHook>());
}

RANKS_TEST("a hook is called for each bucket in order, first and rebuilt") {
  for (const bool is_static : {false, true}) {
    std::vector<at::Tensor> parameters;
    for (const auto dtype :
         {torch::kFloat, torch::kDouble, torch::kFloat, torch::kHalf}) {
      parameters.push_back(torch::ones({3, 2}, dtype).requires_grad_());
    }
    const auto hook = std::make_shared<NotingHook>();
    Reducer reducer(
        parameters,
        group,
        with_hook(hook).bucket_cap_mb(1e-6).static_graph(is_static));
    for (int step = 0; step < 4; ++step) {
      const auto buckets = reducer.buckets();
      hook->calls.clear();
      auto loss = torch::zeros({}, torch::kDouble);
      for (const auto& parameter : parameters) {
        loss = loss + parameter.to(torch::kDouble).sum();
      }
      loss.backward();
      const bool rebuilt = step >= (is_static ? 2 : 1);
      REQUIRE(buckets.size() == (rebuilt ? 4 : 3)); // one per dtype first
      check_calls(step, hook->calls, buckets, parameters);
    }
  }
}

RANKS_TEST("a hook sees this rank's gradients, scaled if it wants them so", 4) {
  for (const bool scaled : {false, true}) {
    auto weight = torch::ones({2}, torch::requires_grad());
    auto unused = torch::ones({3}, torch::requires_grad());
    const auto hook = std::make_shared<NotingHook>(scaled);
    Reducer reducer({weight, unused}, group, with_hook(hook));
    for (int step = 0; step < 3; ++step) {
      weight.mutable_grad().reset();
      (weight * (group.rank() + 1.0)).sum().backward();
      const double own = (group.rank() + 1.0) / (scaled ? 4 : 1);
      // This hook returns the buffer as it was.
      REQUIRE(weight.grad().eq(own).all().item<bool>());
      REQUIRE(hook->contents.back().equal(
          torch::cat({torch::full({2}, own), torch::zeros({3})})));
    }
    const auto guard = reducer.no_sync();
    const auto calls = hook->calls.size();
    weight.sum().backward();
    REQUIRE(hook->calls.size() == calls);
  }
  group.barrier(); // this hook keeps no ranks together, and rank 0 has the
                   // store
}

RANKS_TEST("a hook may return a tensor of its own", 4) {
  const Twins<UnevenNet> twins(group, with_hook(std::make_shared<HalfHook>()));
  for (int step = 0; step < 4; ++step) {
    const auto input = batch(group, step, 7);
    twins.net->zero_grad(/*set_to_none=*/step < 2);
    reset_gradients(*twins.local);
    twins.backward([&](auto& net) { return net.forward(input).sum(); });
    twins.check(1e-2, 1e-2);
    for (const auto& parameter : twins.net->parameters()) {
      const auto& grad = parameter.grad();
      REQUIRE(grad.equal(grad.to(torch::kHalf).to(torch::kFloat)));
    }
    const auto exact = average(group, *twins.local)[2];
    REQUIRE(!twins.net->wide->weight.grad().equal(exact));
  }
}

RANKS_TEST("a hook may wait for collectives of the group it is given") {
  const auto blocking = [](const GradBucket& bucket, const ProcessGroup& own) {
    own.all_reduce(bucket.buffer, ReduceOp::kMean);
    return completed(bucket.buffer);
  };
  const Twins<UnevenNet> twins(
      group, with_hook(custom(blocking)).bucket_cap_mb(1e-6));
  for (int step = 0; step < 3; ++step) {
    const auto input = batch(group, step, 7);
    twins.reset();
    twins.backward([&](auto& net) { return net.forward(input).sum(); });
    twins.check();
  }
}

RANKS_TEST("a hook serves one Reducer at a time") {
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto other = torch::ones({3}, torch::requires_grad());
  const auto averages = [&](const at::Tensor& of) {
    of.mutable_grad().reset();
    (of * static_cast<double>(group.rank())).sum().backward();
    return of.grad().eq(1).all().item<bool>();
  };
  const auto hook = std::make_shared<MeanHook>();
  const auto make = [&](const at::Tensor& of) {
    return Reducer({of}, group, with_hook(hook));
  };
  auto first = std::make_optional(make(parameter));
  REQUIRE_THROWS_WITH(
      make(other),
      Has("MeanHook already belongs to another Reducer",
          "create one hook for each Reducer"));
  REQUIRE(averages(parameter)); // it is still usable
  Reducer copied({other}, group, with_hook(std::make_shared<MeanHook>(*hook)));
  REQUIRE(averages(other));
  REQUIRE_THROWS_WITH(make(other), Has("another Reducer"));
  first.reset();
  REQUIRE_THROWS_WITH(make(other), Has("the parameter 0"));
  auto second = make(parameter); // the failed one did not prevent this
  REQUIRE(averages(parameter));
  auto moved = std::move(second);
  REQUIRE_THROWS_WITH(make(other), Has("MeanHook already belongs to"));
  REQUIRE(averages(parameter));
}

RANKS_TEST("a hook inside others serves one Reducer at a time", {1, 2}) {
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto other = torch::ones({3}, torch::requires_grad());
  const auto make = [&](const at::Tensor& of,
                        const std::shared_ptr<CommHook>& hook) {
    return Reducer({of}, group, with_hook(hook));
  };
  const auto inner = std::make_shared<AllReduceHook>();
  const auto unused = std::make_shared<NotingHook>();
  const auto both = chain_of({unused, fp16_compress_hook(inner)});
  auto first = std::make_optional(make(parameter, fp16_compress_hook(inner)));
  REQUIRE_THROWS_WITH(
      make(other, both), Has("AllReduceHook already belongs to another"));
  make(other, unused); // the failed Reducer released it
  first.reset();
  auto second = std::make_optional(make(parameter, both));
  REQUIRE_THROWS_WITH(
      make(other, inner), Has("AllReduceHook already belongs to another"));
  second.reset();
  REQUIRE_THROWS_WITH(
      make(other, chain_of({inner, fp16_compress_hook(inner)})),
      Has("AllReduceHook occurs twice", "create one hook for each place"));
  make(other, inner);
  group.barrier(); // these hooks keep no ranks together
}

/// Runs another hook than at first.
struct ChangingHook final : CommHook {
  Hooks inner_hooks() const override {
    return {std::exchange(next, nullptr)};
  }
  Future run(const GradBucket& bucket, const ProcessGroup& own) override {
    return sum(bucket.buffer, own);
  }
  mutable std::shared_ptr<CommHook> next = std::make_shared<AllReduceHook>();
};

RANKS_TEST("a hook that another hook no longer runs serves a new Reducer") {
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto changing = std::make_shared<ChangingHook>();
  const auto inner = changing->next;
  auto first = std::make_optional<Reducer>(
      std::vector<at::Tensor>{parameter}, group, with_hook(changing));
  REQUIRE_THROWS_WITH(
      Reducer(
          {torch::ones({3}, torch::requires_grad())}, group, with_hook(inner)),
      Has("AllReduceHook already belongs to another"));
  first.reset();
  const Reducer second({parameter}, group, with_hook(inner));
  group.barrier(); // this hook keeps no ranks together
}

RANKS_TEST("a Reducer that failed leaves its hook to the next one") {
  const auto parameter = torch::ones({2}, torch::requires_grad());
  bool fails = true;
  const auto hook =
      custom([&fails](const GradBucket& bucket, const ProcessGroup& own) {
        TORCH_CHECK(!fails, "no luck");
        return sum(bucket.buffer, own);
      });
  Reducer failed({parameter}, group, with_hook(hook));
  REQUIRE_THROWS_WITH(parameter.sum().backward(), Has("luck"));
  fails = false;
  Reducer next({parameter}, group, with_hook(hook));
  parameter.mutable_grad().reset();
  parameter.sum().backward();
  REQUIRE(parameter.grad().eq(3).all().item<bool>());
}

} // namespace ddp::test::comm_hook_test
