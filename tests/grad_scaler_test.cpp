#include <tests/support/launched.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::grad_scaler_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// One parameter and its optimizer.
struct Training {
  at::Tensor weight = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer{{weight}, /*lr=*/1.};

  /// Leaves `factor` times the scale as gradient.
  void backward(GradScaler& scaler, float factor) {
    optimizer.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
  }

  bool step(GradScaler& scaler, float factor) {
    backward(scaler, factor);
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    return stepped;
  }

  float value() const {
    return weight[0].item<float>();
  }
};

GradScalerOptions small_scale() {
  return GradScalerOptions().init_scale(4).growth_interval(2);
}

TEST_CASE("steps see gradients without the scale") {
  Training training;
  GradScaler scaler(small_scale());
  training.backward(scaler, 0.25);
  CHECK(training.weight.grad()[0].item<float>() == 1);
  CHECK(scaler.step(training.optimizer));
  CHECK(training.value() == 0.75);
  const auto outputs = scaler.scale({torch::ones({1}), torch::zeros({1})});
  CHECK(outputs[0].item<float>() == 4);
  CHECK(outputs[1].item<float>() == 0);
  scaler.update(64);
  CHECK(scaler.get_scale() == 64);
}

TEST_CASE("several optimizers, types and kinds of gradients have one scale") {
  Training finite, infinite;
  auto wide = torch::ones({2}, torch::kDouble).requires_grad_();
  auto narrow = torch::ones({2}, torch::kBFloat16).requires_grad_();
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  torch::optim::SGD others({wide, narrow, table->weight}, /*lr=*/1.);
  GradScaler scaler(small_scale());
  finite.backward(scaler, 1);
  infinite.backward(scaler, kInfinity);
  const auto loss =
      wide.sum() + narrow.sum() + table(torch::tensor({1, 1})).sum();
  scaler.scale(loss).backward();
  CHECK(scaler.step(finite.optimizer));
  CHECK(!scaler.step(infinite.optimizer));
  scaler.unscale_(others);
  CHECK(wide.grad()[0].item<double>() == 1);
  CHECK(narrow.grad()[0].item<float>() == 1);
  CHECK(table->weight.grad().to_dense()[1][0].item<float>() == 2);
  scaler.update();
  CHECK(scaler.get_scale() == 2);
}

TEST_CASE("the gradient of a weight that is listed twice is unscaled once") {
  Training training;
  torch::optim::SGD optimizer(
      std::vector<at::Tensor>(2, training.weight), /*lr=*/1.);
  GradScaler scaler(small_scale());
  training.backward(scaler, 1);
  scaler.unscale_(optimizer);
  CHECK(training.weight.grad()[0].item<float>() == 1);
}

TEST_CASE("a scaler's calls in the wrong order are refused") {
  Training training;
  GradScaler scaler;
  auto& optimizer = training.optimizer;
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), Has("before the first scale"));
  CHECK_THROWS_WITH(scaler.update(), Has("before the first scale"));
  scaler.scale(torch::ones({1}));
  CHECK_THROWS_WITH(scaler.update(), Has("before step()"));
  CHECK_THROWS_WITH(scaler.step(optimizer), Has("have no gradients"));
  scaler = GradScaler();
  training.backward(scaler, 1);
  scaler.unscale_(optimizer);
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), Has("already been called"));
  scaler.step(optimizer);
  CHECK_THROWS_WITH(scaler.step(optimizer), Has("already been called"));
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), Has("after step()"));
  scaler.update();
  auto half = torch::ones({1}, torch::kHalf).requires_grad_();
  torch::optim::SGD of_half({half}, 1.);
  half.mutable_grad() = torch::ones({1}, torch::kHalf);
  CHECK_THROWS_AS(scaler.unscale_(of_half), c10::ValueError);
  using Options = GradScalerOptions;
  for (const auto& options :
       {Options().growth_factor(1),
        Options().backoff_factor(1),
        Options().backoff_factor(-1),
        Options().init_scale(0),
        Options().growth_interval(0)}) {
    CHECK_THROWS_AS(GradScaler(options), c10::ValueError);
  }
}

TEST_CASE("a scaler that is not enabled lets everything pass") {
  Training training;
  GradScaler scaler(GradScalerOptions().enabled(false));
  CHECK(training.step(scaler, 0.25));
  CHECK(training.value() == 0.75);
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().toGenericDict().empty());
  scaler.load_state_dict(GradScaler().state_dict());
  CHECK(scaler.get_scale() == 1);
  CHECK_THROWS_WITH(
      GradScaler().load_state_dict(scaler.state_dict()), Has("empty"));
}

FOLDER_TEST("a scaler goes on from a checkpoint") {
  for (const std::string name : {"run.pt", "run.safetensors"}) {
    Training training;
    GradScaler scaler(small_scale()), other, begun;
    training.step(scaler, kInfinity);
    training.step(scaler, 1); // 1 of the 2 steps to growth
    TrainingState().add("scaler", scaler).save(folder / name);
    training.step(begun, 1);
    for (auto* loaded : {&other, &begun}) {
      REQUIRE(TrainingState().add("scaler", *loaded).load(folder / name));
      CHECK(loaded->get_scale() == 2);
      training.step(*loaded, 1);
      CHECK(loaded->get_scale() == 4);
    }
  }
  GradScaler scaler;
  CHECK_THROWS_AS(scaler.load_state_dict(c10::IValue(1.)), c10::ValueError);
}

RANKS_TEST("ranks with a Reducer skip the same steps", {3, 4}) {
  Training training;
  Reducer reducer({training.weight}, group);
  GradScaler scaler;
  const bool last = group.rank() == group.size() - 1;
  REQUIRE(!training.step(scaler, last ? kInfinity : 1.F));
  REQUIRE(scaler.get_scale() == 32768);
  REQUIRE(training.step(scaler, 1));
}

RANKS_TEST("ranks with gradients of their own agree over a group", {3, 4}) {
  Training training;
  GradScaler scaler({}, group);
  const bool last = group.rank() == group.size() - 1;
  REQUIRE(!training.step(scaler, last ? kInfinity : 1.F));
  REQUIRE(scaler.get_scale() == 32768);
  // A rank may have no gradient at all.
  training.backward(scaler, 1);
  if (last) {
    training.optimizer.zero_grad();
  }
  REQUIRE(scaler.step(training.optimizer));
  scaler.update();
  REQUIRE(training.value() == (last ? 1 : 0));
}

TEST_CASE("a scaler does as Python's does, and Python reads its state") {
  const std::vector<float> factors{
      1, kInfinity, 1, 1, 1, kNaN, 1, 1, 1e38F, 1, 1};
  const TemporaryFolder folder;
  Training training;
  GradScaler scaler(small_scale());
  std::ostringstream ours;
  for (const auto factor : factors) {
    training.step(scaler, factor);
    ours << scaler.get_scale() << " " << training.value() << "\n";
  }
  TrainingState().add("scaler", scaler).save(folder / "run.pt");
  const std::string script =
      "import sys, torch\n"
      "inf, nan = float('inf'), float('nan')\n"
      "weight = torch.ones(2, requires_grad=True)\n"
      "sgd = torch.optim.SGD([weight], lr=1.)\n"
      "make = lambda: torch.amp.GradScaler('cpu', init_scale=4.,\n"
      "                                    growth_interval=2)\n"
      "scaler = make()\n"
      "for factor in [1, inf, 1, 1, 1, nan, 1, 1, 1e38, 1, 1]:\n"
      "    sgd.zero_grad()\n"
      "    scaler.scale((weight * factor).sum()).backward()\n"
      "    scaler.step(sgd)\n"
      "    scaler.update()\n"
      "    print('%g %g' % (scaler.get_scale(), weight[0].item()))\n"
      "state = torch.load(sys.argv[1])['scaler']\n"
      "assert state == scaler.state_dict(), (state, scaler.state_dict())\n"
      "make().load_state_dict(state)\n";
  const auto theirs = python_output({"-c", script, folder / "run.pt"});
  CHECK(theirs == ours.str());
}

} // namespace ddp::test::grad_scaler_test
