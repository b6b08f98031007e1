#include <ddp/ddp.h>
#include <tests/support/comm_hooks.h>
#include <tests/support/hook_training.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>

namespace ddp::test::comm_hooks_test {

// The hooks of the library; their bits are compared in python_hooks_test.cpp.

/// The gradient that a hook makes of `own` in one backward.
at::Tensor reduced(
    const ProcessGroup& group,
    const std::shared_ptr<CommHook>& hook,
    const at::Tensor& own) {
  auto parameter = torch::zeros_like(own).requires_grad_();
  Reducer reducer({parameter}, group, with_hook(hook).share_communicator(true));
  (parameter * own).sum().backward();
  return parameter.grad().clone();
}

RANKS_TEST("Reducers may end while the last callback of their hook does") {
  for (int i = 0; i < 200; ++i) {
    auto parameter = torch::ones({4, 4}).set_requires_grad(true);
    Reducer reducer({parameter}, group, with_hook(fp16_compress_hook()));
    (parameter * (1.0 + group.rank())).sum().backward();
    REQUIRE(std::abs(parameter.grad().mean().item<double>() - 2) < 1e-2);
  }
}

RANKS_TEST("gradients may travel in half precision or bfloat16") {
  check_mean(group, fp16_compress_hook(), 3e-3);
  check_mean(group, bf16_compress_hook(), 3e-2);
  const auto own = torch::full({4}, 3.0 * group.rank());
  REQUIRE(reduced(group, bf16_compress_hook(), own).eq(3).all().item<bool>());
  REQUIRE_THROWS_WITH(CompressHook(torch::kInt), Has("Int is not half"));
}

RANKS_TEST("an inner hook gets the bucket in the smaller type") {
  auto weight = torch::randn({4, 3, 2, 2})
                    .contiguous(at::MemoryFormat::ChannelsLast)
                    .requires_grad_();
  auto bias = torch::zeros({5}, torch::requires_grad());
  const auto own = torch::randn({4, 3, 2, 2});
  int calls = 0;
  const auto inner = custom([&](const GradBucket& bucket, const ProcessGroup&) {
    ++calls;
    REQUIRE(bucket.buffer.scalar_type() == torch::kHalf);
    for (size_t i = 0; i < bucket.gradients.size(); ++i) {
      const auto& gradient = bucket.gradients[i];
      REQUIRE(gradient.is_alias_of(bucket.buffer));
      REQUIRE(gradient.strides() == bucket.parameters[i].strides());
      if (gradient.dim() == 4) {
        REQUIRE(gradient.equal(own.to(torch::kHalf)));
        at::Tensor(gradient).fill_(0.1);
      }
    }
    return completed(std::vector<at::Tensor>{bucket.buffer});
  });
  Reducer reducer({weight, bias}, group, with_hook(fp16_compress_hook(inner)));
  ((weight * own).sum() + 2 * bias.sum()).backward();
  REQUIRE(calls == 1);
  const auto tenth = torch::full({}, 0.1).to(torch::kHalf).to(torch::kFloat);
  REQUIRE(weight.grad().eq(tenth).all().item<bool>());
  REQUIRE(bias.grad().eq(2).all().item<bool>());
  group.barrier(); // this hook keeps no ranks together
}

RANKS_TEST("complex gradients are averaged as they are") {
  const auto own =
      torch::full({3}, c10::complex<double>(3, 6), torch::kComplexDouble) *
      group.rank();
  for (const auto& hook :
       Hooks{fp16_compress_hook(), std::make_shared<QuantizationHook>()}) {
    auto parameter = torch::zeros_like(own).requires_grad_();
    Reducer reducer({parameter}, group, with_hook(hook));
    torch::real(parameter * own.conj()).sum().backward();
    const auto error =
        parameter.grad() - own.new_full({3}, c10::complex<double>(3, 6));
    REQUIRE(error.abs().max().item<double>() < 1e-12);
  }
}

RANKS_TEST("in a chain each hook's result is the next one's buffer") {
  const auto average = std::make_shared<AllReduceHook>();
  check_mean(group, chain_of({average}), 1e-5);
  check_mean(group, chain_of({times(4), average, times(0.5)}), 1e-5, 2);
  const auto inner = chain_of({times(3), average});
  check_mean(group, chain_of({times(2), fp16_compress_hook(inner)}), 3e-2, 6);
  REQUIRE(HookChain({average, times(2)}).takes_scaled_gradients());
  REQUIRE(!HookChain({times(2), average}).takes_scaled_gradients());
  HookChain stateless({average});
  stateless.load_state_dict(stateless.state_dict());
  stateless.load_rank_state_dict(stateless.rank_state_dict());
  HookChain shorter({average, std::make_shared<PowerSGDHook>()});
  const auto local = std::make_shared<PostLocalSGDHook>();
  REQUIRE_THROWS_WITH(
      HookChain({average, std::make_shared<PowerSGDHook>(), local})
          .load_state_dict(shorter.state_dict()),
      Has("by a chain of other hooks"));
  REQUIRE_THROWS_WITH(HookChain({}), Has("list of hooks is empty"));
  REQUIRE_THROWS_WITH(HookChain({average, nullptr}), Has("is null"));
}

/// Counts the calls with the group with which the hook was connected.
struct ConnectedHook final : CommHook {
  ProcessGroup connect(const ProcessGroup& group) override {
    connected = group;
    return group;
  }
  Future run(const GradBucket& bucket, const ProcessGroup& group) override {
    calls += group.c10d() == connected.c10d() ? 1 : 0;
    return sum(bucket.buffer, group);
  }
  ProcessGroup connected;
  int calls = 0;
};

RANKS_TEST("a chain's hooks are connected when their Reducer is constructed") {
  const auto inner = std::make_shared<ConnectedHook>();
  const auto chain = chain_of({fp16_compress_hook(inner)});
  auto parameter = torch::zeros({4}, torch::requires_grad());
  Reducer reducer({parameter}, group, with_hook(chain));
  const auto connected = inner->connected.c10d();
  REQUIRE(connected.defined());
  parameter.sum().backward();
  REQUIRE((inner->connected.c10d() == connected));
  REQUIRE(inner->calls == 1);
}

TEST_CASE("a state that a chain rejects changes none of its hooks") {
  const ProcessGroup group;
  const auto make_chain = [] {
    return chain_of(
        {std::make_shared<PostLocalSGDHook>(),
         std::make_shared<PowerSGDHook>(early()),
         std::make_shared<PowerSGDHook>(early())});
  };
  const auto gradient = torch::ones({30, 40});
  const auto chain = make_chain();
  for (int step = 0; step < 3; ++step) {
    GradBucket bucket;
    bucket.iteration = step;
    bucket.buffer = gradient.clone().view({-1});
    bucket.gradients = {bucket.buffer.view({30, 40})};
    bucket.parameters = {gradient};
    chain->run(bucket, group)->waitAndThrow();
  }
  const auto states = [&] {
    return text_of(chain->state_dict()) + text_of(chain->rank_state_dict());
  };
  const auto before = states();
  const auto reject = [&](const char* key, const c10::IValue& value) {
    auto state = make_chain()->state_dict().toGenericDict();
    state.insert_or_assign(key, value);
    REQUIRE_THROWS_AS(chain->load_state_dict(state), c10::ValueError);
    const bool unchanged = states() == before;
    REQUIRE(unchanged);
  };
  reject("2", 7); // not the state of a PowerSGDHook
  reject("3", 7); // of a longer chain
}

RANKS_TEST("what a chain's hook throws ends backward on all ranks") {
  for (const int kind : {0, 1}) {
    const auto failing = custom(
        [&](const GradBucket& bucket, const ProcessGroup& own) -> Future {
          if (own.rank() == 1 && bucket.index == 1 && kind == 0) {
            throw std::runtime_error("no luck");
          }
          if (own.rank() == 1 && bucket.index == 1) {
            throw 7;
          }
          return completed(bucket.buffer);
        });
    const auto parameters = hook_parameters();
    Reducer reducer(
        parameters,
        group.duplicate(),
        hook_options(chain_of({failing, std::make_shared<AllReduceHook>()})));
    const auto backward = [&](int step) {
      backward_to(parameters, hook_gradients(step, group.rank()));
    };
    backward(0); // one bucket
    const auto text = kind == 0 ? "no luck" : "is not a std::exception";
    REQUIRE_THROWS_WITH(backward(1), Has(text));
  }
}

RANKS_TEST(
    "quantised gradients are exact to half a step of each rank's range") {
  const auto quantise = [&](const at::Tensor& own, int64_t size = 0) {
    QuantizationOptions options;
    if (size > 0) {
      options.channel_size(size);
    }
    return reduced(group, std::make_shared<QuantizationHook>(options), own);
  };
  torch::manual_seed(group.rank());
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf}) {
    auto own = torch::rand({700}, torch::kDouble) - 0.3;
    own.narrow(0, 100, 600).div_(100);
    own = own.to(dtype);
    auto mean = own.to(torch::kDouble);
    group.all_reduce(mean, ReduceOp::kMean);
    const auto error = [&](const at::Tensor& result) {
      REQUIRE(result.scalar_type() == dtype);
      REQUIRE(equal_on_all(group, result));
      return (result - mean).abs();
    };
    const double small = dtype == torch::kHalf ? 1e-3 : 1e-6;
    REQUIRE(error(quantise(own)).max().item<double>() < 0.5 / 255 + small);
    // The last rows' range is a hundredth of the first one's.
    const auto by_channel = error(quantise(own, 100));
    REQUIRE(by_channel.max().item<double>() < 0.5 / 255 + small);
    REQUIRE(
        by_channel.narrow(0, 100, 600).max().item<double>() <
        0.005 / 255 + small);
  }
  for (const int64_t size : {0, 5}) {
    const auto zeros = torch::zeros({size});
    REQUIRE(quantise(zeros).equal(zeros));
  }
  for (const auto value :
       {std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity()}) {
    auto own = torch::ones({5});
    if (group.rank() == 1) {
      own[3] = value;
    }
    REQUIRE(quantise(own).isnan().any().item<bool>());
  }
  REQUIRE_THROWS_WITH(
      QuantizationHook(QuantizationOptions().channel_size(0)),
      Has("channel_size is 0"));
}

RANKS_TEST("after its start post-local SGD averages within the host") {
  check_mean(
      group,
      std::make_shared<PostLocalSGDHook>(
          PostLocalSGDOptions().start_iteration(2)),
      1e-5);
}

RANKS_TEST("post-local SGD averages within the host of each Reducer", 4) {
  const auto hook = std::make_shared<PostLocalSGDHook>();
  const auto own = torch::full({2}, static_cast<double>(group.rank()));
  const auto pair = group.split(group.rank() / 2);
  const auto of_pair = torch::full({2}, group.rank() < 2 ? 0.5 : 2.5);
  REQUIRE(reduced(pair, hook, own).allclose(of_pair));
  REQUIRE(reduced(group, hook, own).allclose(torch::full({2}, 1.5)));
  REQUIRE(reduced(pair, hook, own).allclose(of_pair));
  REQUIRE(hook->describe().find("subgroup of the host") != std::string::npos);
}

RANKS_TEST("post-local SGD goes on in the iteration of its state") {
  const auto make = [] {
    return std::make_shared<PostLocalSGDHook>(
        PostLocalSGDOptions().start_iteration(3).post_local_gradient_allreduce(
            false));
  };
  const auto hook = make();
  const auto parameter = torch::zeros({2}, torch::requires_grad());
  const auto averages = [&](Reducer& reducer) {
    static_cast<void>(reducer);
    parameter.mutable_grad().reset();
    (parameter * static_cast<double>(group.rank())).sum().backward();
    return parameter.grad().allclose(torch::ones({2}));
  };
  c10::IValue state;
  {
    Reducer reducer({parameter}, group, with_hook(hook));
    REQUIRE(averages(reducer));
    REQUIRE(averages(reducer));
    state = reducer.state_dict();
    REQUIRE(reducer.rank_state_dict().isNone());
  }
  Reducer resumed({parameter}, group, with_hook(make()));
  resumed.load_state_dict(state);
  REQUIRE(averages(resumed));
  REQUIRE(averages(resumed) == (group.rank() == 1));
  Reducer plain({torch::zeros({2}, torch::requires_grad())}, group);
  REQUIRE_THROWS_WITH(plain.load_state_dict(state), Has("has no state"));
  group.barrier();
}

// Ranks whose communication hooks differ.

RANKS_TEST("hooks that differ over ranks are refused by their descriptions") {
  const bool odd = group.rank() == 1;
  const auto power_sgd = [](const PowerSGDOptions& options) {
    return std::make_shared<PowerSGDHook>(options);
  };
  const auto parameter = torch::ones({2}, torch::requires_grad());
  const auto rejected = [&](const std::shared_ptr<CommHook>& usual,
                            const std::string& usual_text,
                            const std::shared_ptr<CommHook>& other,
                            const std::string& other_text) {
    const auto error = words_of<c10::ValueError>([&] {
      (void)Reducer({parameter}, group, with_hook(odd ? other : usual));
    });
    INFO(error);
    const auto second = error.find("rank 0 has (");
    REQUIRE(error.find("rank 1 has options (") < second);
    REQUIRE(error.find("comm_hook " + other_text) < second);
    REQUIRE(error.find("comm_hook " + usual_text, second) < error.size());
  };
  rejected(
      fp16_compress_hook(),
      "ddp::CompressHook(Half, ddp::AllReduceHook))",
      bf16_compress_hook(),
      "ddp::CompressHook(BFloat16, ddp::AllReduceHook))");
  rejected(
      power_sgd(PowerSGDOptions()),
      "ddp::PowerSGDHook(matrix_approximation_rank 1, ",
      power_sgd(PowerSGDOptions().matrix_approximation_rank(2)),
      "ddp::PowerSGDHook(matrix_approximation_rank 2, ");
  rejected( // inside another
      fp16_compress_hook(power_sgd(PowerSGDOptions())),
      "ddp::CompressHook(Half, ddp::PowerSGDHook(matrix_approximation_rank "
      "1, start_iteration 1000, ",
      fp16_compress_hook(power_sgd(PowerSGDOptions().start_iteration(5))),
      "ddp::CompressHook(Half, ddp::PowerSGDHook(matrix_approximation_rank "
      "1, start_iteration 5, ");
  rejected(
      chain_of({std::make_shared<NoopHook>(), fp16_compress_hook()}),
      "ddp::HookChain(ddp::NoopHook, ddp::CompressHook(Half, "
      "ddp::AllReduceHook)))",
      chain_of({fp16_compress_hook()}),
      "ddp::HookChain(ddp::CompressHook(Half, ddp::AllReduceHook)))");
  rejected(
      std::make_shared<QuantizationHook>(),
      "ddp::QuantizationHook(channel_size unset))",
      std::make_shared<QuantizationHook>(
          QuantizationOptions().channel_size(512)),
      "ddp::QuantizationHook(channel_size 512))");
  rejected(
      std::make_shared<PostLocalSGDHook>(),
      "ddp::PostLocalSGDHook(start_iteration 0, ",
      std::make_shared<PostLocalSGDHook>(
          PostLocalSGDOptions().start_iteration(3)),
      "ddp::PostLocalSGDHook(start_iteration 3, ");
  rejected(
      nullptr,
      "ddp::AllReduceHook)",
      std::make_shared<NoopHook>(),
      "ddp::NoopHook)");
  // The default, asked for.
  Reducer reducer(
      {parameter},
      group,
      with_hook(odd ? std::make_shared<AllReduceHook>() : nullptr));
  parameter.sum().backward();
  REQUIRE(parameter.grad().eq(1).all().item<bool>());
}

RANKS_TEST("a hook that lets ranks differ excludes the check of divergence") {
  const auto start = [&](const std::shared_ptr<CommHook>& hook) {
    const auto options = with_hook(hook).share_communicator(true);
    const Reducer reducer(
        {torch::ones({2}, torch::requires_grad())},
        group,
        ReducerOptions(options).check_divergence_every(2));
  };
  for (const auto& hook : Hooks{
           std::make_shared<NoopHook>(),
           fp16_compress_hook(std::make_shared<NoopHook>()),
           std::make_shared<PostLocalSGDHook>(),
           chain_of({std::make_shared<NoopHook>()})}) {
    REQUIRE_THROWS_WITH(
        start(hook),
        Has("check_divergence_every: with this comm_hook, ranks have different "
            "gradients"));
  }
  REQUIRE_NOTHROW(start(fp16_compress_hook()));
  REQUIRE_NOTHROW(start(chain_of(
      {std::make_shared<NoopHook>(), std::make_shared<AllReduceHook>()})));
}

} // namespace ddp::test::comm_hooks_test
