#include <tests/support/catch.h>

#include <ddp/reducer/observers/unmanaged_leaves.h>

#include <torch/csrc/autograd/engine.h>

namespace ddp::test::unmanaged_leaves_test {

using detail::UnmanagedLeaves;

const auto kNowhere = [](const at::Tensor&) { return false; };

/// Runs backward and returns the inspection's report.
std::string report_of(
    UnmanagedLeaves& leaves,
    const at::Tensor& loss,
    const std::function<bool(const at::Tensor&)>& reduced_elsewhere = kNowhere,
    const std::vector<at::Tensor>& inputs = {}) {
  std::string text = "the hook did not run";
  loss.register_hook(
      [&](const at::Tensor&) { text = leaves.inspect(reduced_elsewhere); });
  if (inputs.empty()) {
    loss.backward();
  } else {
    loss.backward({}, std::nullopt, false, inputs);
  }
  return text;
}

/// The report of the second of two steps; the first one's must be empty.
std::string second_report(
    UnmanagedLeaves& leaves,
    const std::function<at::Tensor()>& loss) {
  REQUIRE(report_of(leaves, loss()).empty());
  return report_of(leaves, loss());
}

at::Tensor learned(at::IntArrayRef sizes) {
  return torch::randn(sizes, at::TensorOptions().requires_grad(true));
}

/// The managed part of the models below, Linear(3, 4).
struct Stem {
  torch::nn::Linear module{3, 4};

  UnmanagedLeaves leaves(const std::vector<at::Tensor>& known = {}) {
    return {unique_parameters(*module), known};
  }
  at::Tensor operator()() {
    return module(torch::randn({5, 3}));
  }
};

/// A module that chooses its branch by a function bound to `this`.
struct Dynamic : torch::nn::Cloneable<Dynamic> {
  torch::nn::Linear stem{nullptr}, branch{nullptr}, unused{nullptr};
  std::function<at::Tensor(const at::Tensor&)> chosen;

  Dynamic() {
    Dynamic::reset();
    bind();
  }
  void reset() override {
    stem = register_module("stem", torch::nn::Linear(3, 4));
    branch = register_module("branch", torch::nn::Linear(4, 8));
    unused = register_module("unused", torch::nn::Linear(4, 2));
  }
  void bind() {
    chosen = [this](const at::Tensor& x) { return branch->forward(x); };
  }
  at::Tensor forward(const at::Tensor& x) {
    return chosen(stem(x));
  }
};

TEST_CASE("bare tensors are reported with all operations that use them") {
  Stem stem;
  auto leaves = stem.leaves();
  const std::vector<at::Tensor> scales{
      learned({4}), torch::ones({4}, torch::kDouble).requires_grad_()};
  const auto loss = [&] {
    auto x = stem() * scales[0];
    x = (x + scales[0].exp()) * scales[0];
    return (x + scales[1]).sum();
  };
  const auto text = second_report(leaves, loss);
  REQUIRE_THAT(
      text, Has("Float [4] on cpu, used by MulBackward0, ExpBackward0\n"));
  REQUIRE_THAT(text, Has("Double [4] on cpu, used by AddBackward0\n"));
}

TEST_CASE("a leaf is reported once, and one that comes later as well") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto first = learned({4});
  const auto second = learned({5, 1});
  REQUIRE(report_of(leaves, (stem() * first).sum()).empty());
  REQUIRE_THAT(report_of(leaves, (stem() * first).sum()), Has("Float [4] "));
  REQUIRE(report_of(leaves, (stem() * first).sum()).empty());
  REQUIRE(report_of(leaves, (stem() * first * second).sum()).empty());
  const auto text = report_of(leaves, (stem() * first * second).sum());
  REQUIRE_THAT(text, Has("Float [5, 1] ") && !Has("Float [4] "));
}

TEST_CASE("a leaf that is known, or another Reducer's, is not reported") {
  Stem stem;
  const auto own = learned({4});
  const auto theirs = learned({1});
  const auto nobodys = learned({5, 1});
  auto leaves = stem.leaves({own, at::Tensor()});
  const auto elsewhere = [&](const at::Tensor& tensor) {
    return tensor.is_same(theirs);
  };
  const auto loss = [&] { return (stem() * own * theirs * nobodys).sum(); };
  report_of(leaves, loss(), elsewhere);
  const auto text = report_of(leaves, loss(), elsewhere);
  REQUIRE_THAT(
      text, Has("Float [5, 1] ") && !Has("Float [4] ") && !Has("Float [1] "));
}

TEST_CASE("inputs that require gradients are not reported") {
  Stem stem;
  auto leaves = stem.leaves();
  std::vector<at::Tensor> kept; // later ones reuse a freed address
  for (int step = 0; step < 50; ++step) {
    const auto input = learned({5, 3});
    REQUIRE(report_of(leaves, stem.module(input).sum()).empty());
    REQUIRE(input.grad().defined());
    if (step < 5) {
      kept.push_back(input);
    }
  }
}

TEST_CASE("a leaf that no gradient is put into is not reported") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto scale = learned({4});
  SECTION("backward with inputs leaves it out") {
    for (int step = 0; step < 3; ++step) {
      const auto loss = (stem() * scale).sum();
      REQUIRE(report_of(leaves, loss, kNowhere, {stem.module->bias}).empty());
    }
    REQUIRE(stem.module->bias.grad().defined());
  }
  SECTION("it was frozen after the forward") {
    for (int step = 0; step < 3; ++step) {
      const auto loss = (stem() * scale).sum();
      scale.set_requires_grad(false);
      REQUIRE(report_of(leaves, loss).empty());
      scale.set_requires_grad(true);
    }
  }
  REQUIRE_FALSE(scale.grad().defined());
}

TEST_CASE("a leaf that backward with inputs selects is reported") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto scale = learned({4});
  report_of(leaves, (stem() * scale).sum(), kNowhere, {scale});
  REQUIRE_THAT(
      report_of(leaves, (stem() * scale).sum(), kNowhere, {scale}),
      Has("Float [4] on cpu, used by MulBackward0\n"));
}

TEST_CASE("the operation that backward starts from has no name") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto weights = learned({20});
  report_of(leaves, stem().flatten().dot(weights));
  REQUIRE_THAT(
      report_of(leaves, stem().flatten().dot(weights)),
      Has("Float [20] on cpu, used where backward starts\n"));
}

TEST_CASE("hundreds of leaves are shortened") {
  Stem stem;
  auto leaves = stem.leaves();
  std::vector<at::Tensor> scales(300);
  for (auto& scale : scales) {
    scale = learned({4});
  }
  const auto loss = [&] {
    auto x = stem();
    for (const auto& scale : scales) {
      x = x * scale;
    }
    return x.sum();
  };
  const auto text = second_report(leaves, loss);
  REQUIRE_THAT(text, Has("\n  ... and 292 more\n"));
  REQUIRE(std::count(text.begin(), text.end(), '\n') == 10);
}

TEST_CASE("a clone that calls its original's branch is recognized") {
  auto original = std::make_shared<Dynamic>();
  auto clone = std::dynamic_pointer_cast<Dynamic>(original->clone());
  UnmanagedLeaves leaves(unique_parameters(*clone), {});
  const auto input = torch::randn({5, 3});
  const auto loss = [&] { return clone->forward(input).sum(); };
  const std::string claim =
      "These tensors look like the originals of 'branch.weight', "
      "'branch.bias', which this backward pass does not reach:";
  SECTION("by all leaves") {
    const auto text = second_report(leaves, loss);
    REQUIRE_THAT(
        text, Has("Float [8, 4] on cpu, used by AddmmBackward0\n", claim));
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) { // which ddprun takes for one text
      REQUIRE(line.substr(0, 2) == "  ");
    }
  }
  SECTION("not while one leaf has no counterpart") {
    const auto scale = learned({1, 8});
    const auto text = second_report(
        leaves, [&] { return (clone->forward(input) * scale).sum(); });
    REQUIRE_THAT(text, Has("Float [8, 4] ") && !Has("originals"));
  }
  SECTION("not where the counterpart is of another dtype") {
    clone->branch->to(torch::kDouble);
    const auto text = second_report(leaves, loss);
    REQUIRE_THAT(text, Has("Float [8, 4] ") && !Has("originals"));
  }
  SECTION("not where one counterpart stands for two leaves") {
    const auto bias = learned({8});
    const auto text = second_report(
        leaves, [&] { return (clone->forward(input) + bias).sum(); });
    REQUIRE_THAT(
        text,
        Has("Float [8] on cpu, used by AddBackward0\n") && !Has("originals"));
  }
  SECTION("not where the counterpart is reached as well") {
    const auto text = second_report(leaves, [&] {
      return clone->forward(input).sum() +
          clone->branch(clone->stem(input)).sum();
    });
    REQUIRE_THAT(text, Has("Float [8, 4] ") && !Has("originals"));
  }
  SECTION("nothing is left to say once it is bound again") {
    clone->bind();
    REQUIRE(report_of(leaves, loss()).empty());
    REQUIRE(report_of(leaves, loss()).empty());
  }
}

TEST_CASE("the end of backward is early enough") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto scale = learned({4});
  std::string text;
  for (int step = 0; step < 2; ++step) {
    auto x = stem() * scale;
    x.register_hook([&](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [&] { text = leaves.inspect(kNowhere); });
    });
    std::exchange(x, at::Tensor()).sum().backward();
  }
  REQUIRE_THAT(text, Has("Float [4] on cpu, used by MulBackward0\n"));
}

TEST_CASE("outside a backward there is nothing to inspect") {
  Stem stem;
  REQUIRE(stem.leaves().inspect(kNowhere).empty());
}

TEST_CASE("an input in two backwards of one forward is left alone") {
  Stem stem;
  auto leaves = stem.leaves();
  const auto input = learned({5, 1});
  const auto output = stem() * input;
  const auto report = [&](const torch::Tensor& loss) {
    std::string text;
    auto x = loss * 1;
    x.register_hook(
        [&](const at::Tensor&) { text = leaves.inspect(kNowhere); });
    x.backward({}, /*retain_graph=*/true);
    return text;
  };
  REQUIRE(report(output.sum()).empty());
  REQUIRE(report(output.pow(2).sum()).empty());
  REQUIRE_THAT(report((stem() * input).sum()), Has("Float [5, 1] on cpu"));
}

} // namespace ddp::test::unmanaged_leaves_test
