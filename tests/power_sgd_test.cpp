// PowerSGD; its bits are compared in python_hooks_test.cpp.
#include <tests/support/hook_training.h>
#include <tests/support/ranks.h>

namespace ddp::test::power_sgd_test {

/// Gradients of one matrix over steps.
struct MatrixRun {
  MatrixRun(const ProcessGroup& group, const PowerSGDOptions& options)
      : reducer(
            {weight},
            group,
            hook_options(std::make_shared<PowerSGDHook>(options))) {}

  at::Tensor step(const at::Tensor& gradient) {
    weight.mutable_grad().reset();
    (weight * gradient).sum().backward();
    return weight.grad().clone();
  }

  at::Tensor weight = torch::zeros({30, 20}, torch::requires_grad());
  Reducer reducer;
};

TEST_CASE("PowerSGD options that cannot be are refused") {
  const auto rejected = [](const PowerSGDOptions& options,
                           const std::string& reason) {
    REQUIRE_THROWS_WITH(PowerSGDHook(options), Has(reason));
  };
  for (const int64_t start : {0, 1}) {
    const auto options = PowerSGDOptions().start_iteration(start);
    const auto reason =
        "start_iteration is " + std::to_string(start) + ", expected 2 or more";
    rejected(options, reason);
    rejected(PowerSGDOptions(options).use_error_feedback(false), reason);
    rejected(PowerSGDOptions(options).warm_start(false), reason);
    const auto neither =
        PowerSGDOptions(options).use_error_feedback(false).warm_start(false);
    REQUIRE_NOTHROW(PowerSGDHook(neither));
  }
  rejected(
      PowerSGDOptions().matrix_approximation_rank(0),
      "matrix_approximation_rank is 0");
  rejected(
      PowerSGDOptions().min_compression_rate(-1), "min_compression_rate is -1");
  rejected(
      PowerSGDOptions().orthogonalization_epsilon(-1),
      "orthogonalization_epsilon is -1");
  rejected(PowerSGDOptions().random_seed(-1), "random_seed is -1");
  rejected(
      PowerSGDOptions().random_seed(1LL << 32), "random_seed is 4294967296");
}

RANKS_TEST("matrices of low rank are averaged exactly, and vanilla before") {
  for (const bool whole : {false, true}) {
    MatrixRun run(
        group, early().matrix_approximation_rank(2).whole_bucket(whole));
    torch::manual_seed(1);
    const auto left = torch::randn({30, 2});
    const auto right = torch::randn({2, 20});
    for (int step = 0; step < 5; ++step) {
      const auto result = run.step(left.matmul(right) * (group.rank() + step));
      const auto error = result - left.matmul(right) * (1 + step);
      INFO("step " << step << ", error " << largest(error));
      if (whole && step > 1) { // the square is not of low rank
        REQUIRE(largest(error) > 0.1);
      } else {
        REQUIRE(largest(error) < 1e-3);
      }
      REQUIRE(equal_on_all(group, result));
    }
  }
}

RANKS_TEST("what compression loses is added to the next gradients") {
  for (const bool feedback : {true, false}) {
    MatrixRun run(group, early().use_error_feedback(feedback));
    torch::manual_seed(group.rank());
    const auto own = torch::randn({30, 20});
    auto mean = own.clone();
    group.all_reduce(mean, ReduceOp::kMean);
    auto sum = torch::zeros({30, 20});
    constexpr int kSteps = 200;
    for (int step = 0; step < kSteps; ++step) {
      sum += run.step(own);
    }
    const auto error = (sum / kSteps - mean).norm() / mean.norm();
    REQUIRE((error.item<double>() < 0.2) == feedback);
  }
}

RANKS_TEST("a step of zeros, or of NaN, does no lasting harm") {
  for (const int64_t rank : {1, 2, 4}) {
    for (const double bad : {0.0, std::nan("")}) {
      MatrixRun run(group, early().matrix_approximation_rank(rank));
      torch::manual_seed(1);
      const auto good =
          torch::randn({30, rank}).matmul(torch::randn({rank, 20}));
      for (int step = 0; step < 12; ++step) {
        const bool is_bad = step == 3 || step == 4;
        const auto result = run.step(good * (is_bad ? bad : 1.0));
        if (is_bad) {
          REQUIRE(result.isnan().any().item<bool>() == std::isnan(bad));
        } else if (step > 9) {
          INFO("rank " << rank << ", error " << largest(result - good));
          REQUIRE(largest(result - good) < 0.05);
        }
      }
    }
  }
}

RANKS_TEST("buckets of all kinds are reduced in order beside backward") {
  std::vector<at::Tensor> parameters;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf}) {
    for (int i = 0; i < 8; ++i) {
      parameters.push_back(torch::ones({20 + i, 16}, dtype));
      parameters.push_back(torch::ones({i, 0}, dtype));
      parameters.push_back(torch::ones({}, dtype));
      parameters.push_back(torch::ones({3, 2, 2, 5}, dtype)
                               .contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  parameters.push_back(torch::ones({30, 30}, torch::kComplexFloat));
  parameters.push_back(torch::ones({0, 3}, torch::kComplexDouble));
  for (auto& parameter : parameters) {
    parameter.requires_grad_();
  }
  const auto hook =
      std::make_shared<PowerSGDHook>(early().min_compression_rate(0.5));
  Reducer reducer(parameters, group, hook_options(hook).bucket_cap_mb(1e-6));
  for (int step = 0; step < 6; ++step) {
    auto loss = torch::zeros({}, torch::kDouble);
    for (const auto& parameter : parameters) {
      const double own = group.rank() + step;
      loss = loss + torch::real(parameter).to(torch::kDouble).sum() * own;
    }
    loss.backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& grad = parameters[i].grad();
      const auto exact = torch::full_like(grad, 1 + step);
      INFO("step " << step << ", parameter " << i);
      REQUIRE(torch::allclose(grad, exact, 2e-2, 2e-2)); // of rank one
      REQUIRE(equal_on_all(group, torch::real(grad)));
      parameters[i].mutable_grad().reset();
    }
  }
  REQUIRE(reducer.buckets().size() > 50);
}

RANKS_TEST("the compression rate counts what is sent") {
  const auto hook = std::make_shared<PowerSGDHook>(early());
  auto weight = torch::zeros({30, 20}, torch::requires_grad());
  auto bias = torch::zeros({30}, torch::requires_grad());
  Reducer reducer({weight, bias}, group, hook_options(hook));
  for (int step = 0; step < 4; ++step) {
    REQUIRE(hook->compression_rate() == (step < 3 ? 0 : 630.0 / 80));
    (weight.sum() + bias.sum()).backward();
  }
}

} // namespace ddp::test::power_sgd_test
