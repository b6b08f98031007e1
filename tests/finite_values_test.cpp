#include <ddp/ddp.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

namespace ddp::test::finite_values_test {

std::string not_finite(const ProcessGroup& group, const NamedTensors& tensors) {
  return error_on_all(group, [&] { verify_finite(tensors, group, "values"); });
}

std::string not_finite(const ProcessGroup& group, const torch::Tensor& x) {
  return not_finite(group, NamedTensors{{"x"}, {x}});
}

RANKS_TEST("NaN and infinity on any rank are named on all", 4) {
  torch::NoGradGuard no_grad;
  torch::nn::BatchNorm1d norm(4);
  set_gradients(*norm);
  const auto found = [&](const VerificationOptions& options) {
    return error_on_all(group, [&] { verify_finite(*norm, group, options); });
  };
  const auto all = VerificationOptions().gradients(true).buffers(true);
  norm->bias.mutable_grad() = torch::Tensor();
  REQUIRE(found(all) == "");
  if (group.rank() == 1) {
    norm->weight.mutable_grad()[0] = INFINITY;
    norm->weight.mutable_grad()[1] = NAN;
    norm->weight.mutable_grad()[3] = -INFINITY;
  }
  REQUIRE(found({}) == "");
  norm->running_mean[2] = NAN;
  REQUIRE(found(VerificationOptions()) == "");
  REQUIRE(
      found(all) ==
      "the parameters, gradients and buffers are not finite on ranks 0-3:\n"
      "  ranks 0-3: running_mean (Float [4]) has 1 NaN and 0 inf\n"
      "  rank 1: the gradient of weight (Float [4]) has 1 NaN and 2 inf");
  REQUIRE_THAT(
      found(VerificationOptions().gradients(true)),
      Has("gradients are not finite on rank 1:"));
  if (group.rank() == 3) {
    norm->weight[2] = INFINITY;
  }
  REQUIRE(
      found({}) ==
      "the parameters are not finite on rank 3:\n"
      "  rank 3: weight (Float [4]) has 0 NaN and 1 inf");
}

RANKS_TEST("a few of many tensors that are not finite are named") {
  NamedTensors tensors;
  for (int64_t i = 0; i < (group.rank() == 1 ? 20 : 1); ++i) {
    tensors.names.push_back("t" + std::to_string(i));
    tensors.tensors.push_back(torch::full({2}, group.rank() ? NAN : 0));
  }
  REQUIRE_THAT(
      not_finite(group, tensors),
      Has("on ranks 1 and 2:\n  ranks 1 and 2: t0",
          "\n  rank 1: t7 (Float [2]) has 2 NaN") &&
          // t8 to t19
          Catch::Matchers::EndsWith("inf\n  ... and 12 more"));
}

RANKS_TEST("tensors of any dtype and layout are checked for NaN") {
  for (const auto& tensor : ones_of_all_kinds()) {
    CAPTURE(tensor.toString());
    REQUIRE(not_finite(group, tensor) == "");
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      continue;
    }
    // Through float, since not every dtype can be multiplied.
    const bool real = !tensor.is_complex();
    const auto wide = tensor.to(real ? torch::kFloat : torch::kComplexFloat);
    const auto odd =
        group.rank() == 1 ? (wide * NAN).to(tensor.dtype()) : tensor;
    REQUIRE_THAT(not_finite(group, odd), Has("rank 1: x ("));
  }
  REQUIRE(not_finite(group, torch::empty({0, 3})) == "");
  REQUIRE(not_finite(group, torch::Tensor()) == "");
  REQUIRE(not_finite(group, NamedTensors{}) == "");
}

TEST_CASE("a NaN is found wherever it is, and large values are finite") {
  const ProcessGroup alone;
  const auto counted = [&](const torch::Tensor& x) {
    return not_finite(alone, x);
  };
  for (int64_t i = 0; i < 100; ++i) {
    auto x = torch::zeros(100);
    x[i] = i % 2 ? NAN : -INFINITY;
    REQUIRE_THAT(counted(x), Has(i % 2 ? "1 NaN and 0" : "0 NaN and 1"));
    REQUIRE_THAT(counted(x.view({20, 5}).t()), Has("rank 0: x"));
  }
  const auto large = torch::full({1000}, 3e38);
  REQUIRE(counted(large) == "");
  REQUIRE(counted(torch::full({1000}, 65504, torch::kHalf)) == "");
  REQUIRE(counted(large.to(torch::kBFloat16)) == "");
  REQUIRE(counted(large.to(torch::kHalf)) != "");
  REQUIRE(counted(torch::cat({large, -large})) == "");
  const auto z = torch::complex(
      torch::tensor({0.0F, NAN, 0.0F, NAN}),
      torch::tensor({0.0F, 0.0F, INFINITY, INFINITY}));
  REQUIRE_THAT(counted(z), Has("2 NaN and 2 inf"));
  REQUIRE_THAT(counted(torch::conj(z)), Has("2 NaN and 2 inf"));
  // The value of a sparse tensor is the sum.
  const auto twice = torch::sparse_coo_tensor(
      torch::zeros({1, 2}, torch::kLong), torch::full({2}, 3e38), {4});
  REQUIRE_THAT(counted(twice), Has("0 NaN and 1 inf"));
}

RANKS_TEST("check_divergence_every finds parameters that went apart", 4) {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group, ReducerOptions().check_divergence_every(3));
  const auto step = [&](int number) {
    net->forward(batch(group, number, 4), true).sum().backward();
  };
  step(1);
  step(2);
  step(3);
  if (group.rank() == 2) {
    const torch::NoGradGuard no_grad;
    net->left->bias[1] += 1e-3;
  }
  step(4);
  step(5);
  REQUIRE_THROWS_WITH(
      step(6),
      Has("the parameters differ between ranks: left.bias",
          "on rank 2",
          "ranks 0, 1 and 3"));
}

RANKS_TEST("check_finite names the rank and the parameter, on all ranks") {
  for (const double bad : {std::nan(""), double(INFINITY)}) {
    auto net = std::make_shared<BranchNet>();
    Reducer reducer(net, group, ReducerOptions().check_finite(true));
    for (int step = 0; step < 2; ++step) {
      net->forward(batch(group, step, 4), true).sum().backward();
    }
    auto input = batch(group, 2, 4);
    if (group.rank() == 1) {
      input[0][0] = bad;
    }
    REQUIRE_THROWS_WITH(
        net->forward(input, true).sum().backward(),
        Has("the gradients are not finite on rank 1",
            "a smaller learning rate",
            "stem.weight"));
  }
}

RANKS_TEST("an overflow of the sum is not this rank's NaN") {
  auto weight = torch::ones({2}, torch::requires_grad());
  Reducer reducer({weight}, group, ReducerOptions().check_finite(true));
  (weight * 3e38f).sum().backward(); // each finite, and so is the mean
  REQUIRE(weight.grad().isfinite().all().item<bool>());
}

} // namespace ddp::test::finite_values_test
