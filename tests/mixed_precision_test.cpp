// examples/mixed_precision.cpp, and the guard that it uses.
#include <tests/support/examples.h>

#include <ATen/autocast_mode.h>
#include <ddp/ddp.h>
#include <tests/support/ranks.h>
#include <tests/support/twins.h>

namespace ddp::test::mixed_precision_test {

struct Result {
  double first = 0, last = 0, scale = 0;
  int skipped = 0;
};

Result train(int ranks, const Words& arguments) {
  const auto words = match(
      output_of(example(ranks, "mixed_precision", arguments)),
      R"(loss (\S+) at first, (\S+) at last\n\[0\] (\d+) of 60 steps skipped, scale (\d+))");
  return {
      std::stod(words[0]),
      std::stod(words[1]),
      std::stod(words[3]),
      std::stoi(words[2])};
}

TEST_CASE("a net learns in bfloat16 without a scale") {
  const auto result = train(3, {"--dtype", "bfloat16"});
  CHECK(result.last < 0.6 * result.first);
  CHECK(result.skipped == 0);
  CHECK(result.scale == 1);
}

TEST_CASE("a net learns in float16, and all ranks skip a step of infinity") {
  const auto result = train(3, {"--dtype", "float16", "--overflow-at", "5"});
  CHECK(result.last < 0.6 * result.first);
  CHECK(result.skipped == 1);
  CHECK(result.scale == 32768);
}

TEST_CASE("autocast guards nest and put back what was") {
  const auto weight = torch::ones({2, 2});
  const auto dtype = [&] { return weight.mm(weight).scalar_type(); };
  const auto before = at::autocast::get_autocast_dtype(torch::kCPU);
  {
    CHECK_THROWS_AS(AutocastGuard(torch::kCPU, torch::kInt), c10::ValueError);
    const AutocastGuard outer(torch::kCPU, torch::kBFloat16);
    CHECK(dtype() == torch::kBFloat16);
    {
      const AutocastGuard inner(torch::kCPU, torch::kHalf);
      CHECK(dtype() == torch::kHalf);
    }
    CHECK(dtype() == torch::kBFloat16);
  }
  CHECK(dtype() == torch::kFloat);
  CHECK(!at::autocast::is_autocast_enabled(torch::kCPU));
  CHECK(at::autocast::get_autocast_dtype(torch::kCPU) == before);
}

TEST_CASE("an autocast guard does not keep a weight from before the step") {
  auto weight = torch::ones({2, 2}).requires_grad_();
  for (const float value : {1.F, 2.F}) {
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(value);
    }
    const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
    CHECK(weight.mm(torch::eye(2))[0][0].item<float>() == value);
  }
}

RANKS_TEST("a Reducer averages single precision under autocast") {
  Twins<UnevenNet> twins(group);
  for (int step = 0; step < 4; ++step) {
    const auto backward = [&](int64_t number) {
      const auto input = batch(group, number, 7);
      twins.backward([&](UnevenNet& net) {
        const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
        const auto loss = net.forward(input).sum();
        REQUIRE(loss.scalar_type() == torch::kBFloat16);
        return loss;
      });
    };
    twins.reset();
    if (step % 2 == 1) { // accumulates
      const auto guard = twins.reducer.no_sync();
      backward(step + 10);
      backward(step + 20);
    }
    backward(step);
    twins.check();
    for (const auto& parameter : twins.net->parameters()) {
      REQUIRE(parameter.grad().scalar_type() == torch::kFloat);
    }
  }
}

} // namespace ddp::test::mixed_precision_test
