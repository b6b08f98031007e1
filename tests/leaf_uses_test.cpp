// Which forgotten parameters the first backward proves to be some, and which
// leaves it does not take for parameters.
#include <tests/support/catch.h>

#include <ddp/reducer/observers/unmanaged_leaves.h>

#include <functional>
#include <regex>
#include <string>
#include <vector>

namespace ddp::test::leaf_uses_test {

namespace {

namespace nn = torch::nn;
using detail::UnmanagedLeaves;

/// A net of which one layer is managed and the rest is what a test adds.
struct Net {
  nn::Linear stem{3, 4};
  UnmanagedLeaves leaves{unique_parameters(*stem), {}};

  /// What comes out of the managed layer.
  at::Tensor operator()() {
    return stem(torch::randn({5, 3}));
  }

  /// What is said in the first backward.
  std::string first_report(const at::Tensor& loss) {
    std::string text = "the hook did not run";
    const auto root = loss.sum() * 1; // no operation of the test is the root
    root.register_hook([&](const at::Tensor&) {
      text = leaves.inspect([](const at::Tensor&) { return false; });
    });
    root.backward();
    return text;
  }
};

at::Tensor leaf(at::IntArrayRef sizes) {
  return torch::randn(sizes, at::TensorOptions().requires_grad(true));
}

/// How many leaves the report tells of, shown or not.
size_t count_of(const std::string& report) {
  const std::regex line("\n  (Float|Double) \\[");
  const auto shown = std::distance(
      std::sregex_iterator(report.begin(), report.end(), line), {});
  const std::regex rest("\\.\\.\\. and (\\d+) more");
  std::smatch more;
  return shown +
      (std::regex_search(report, more, rest) ? std::stoul(more[1]) : 0);
}

/// Checks that all of a forgotten layer's parameters are told of at once.
template <typename Layer>
void check_layer(
    Layer layer,
    const std::function<at::Tensor(Layer&)>& forward) {
  Net net;
  const auto report = net.first_report(forward(layer) + net().sum());
  INFO(report);
  CHECK(count_of(report) == layer->parameters().size());
}

template <typename Layer>
void check_layer(Layer layer, const at::Tensor& input) {
  check_layer<Layer>(layer, [&](Layer& l) { return l->forward(input); });
}

} // namespace

TEST_CASE("each kind of layer is told of in the first backward") {
  const auto image = torch::randn({2, 4, 6, 6});
  const auto row = torch::randn({2, 4, 6});
  check_layer(nn::Linear(6, 3), row);
  check_layer(nn::Linear(6, 3), torch::randn({2, 6}));
  check_layer(nn::Linear(nn::LinearOptions(6, 3).bias(false)), row);
  check_layer(nn::Linear(6, 3), row.transpose(0, 1));
  check_layer(nn::Conv1d(4, 3, 3), row);
  check_layer(nn::Conv2d(4, 3, 3), image);
  check_layer(nn::ConvTranspose2d(4, 3, 3), image);
  check_layer(nn::BatchNorm2d(4), image);
  check_layer(nn::LayerNorm(nn::LayerNormOptions({6})), image);
  check_layer(nn::GroupNorm(2, 4), image);
  check_layer(
      nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true)), image);
  check_layer(nn::PReLU(nn::PReLUOptions().num_parameters(4)), image);
  check_layer(nn::PReLU(), image);
}

TEST_CASE("tables and recurrent layers are told of in the first backward") {
  const auto words = torch::tensor({{1, 2, 3}, {3, 0, 1}});
  check_layer(nn::Embedding(5, 3), words);
  check_layer<nn::EmbeddingBag>(
      nn::EmbeddingBag(5, 3), [&](auto& bag) { return bag->forward(words); });
  const auto sequence = torch::randn({7, 2, 4});
  check_layer<nn::LSTM>(
      nn::LSTM(nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true)),
      [&](auto& lstm) { return std::get<0>(lstm->forward(sequence)); });
  check_layer<nn::GRU>(nn::GRU(4, 3), [&](auto& gru) {
    return std::get<0>(gru->forward(sequence));
  });
  check_layer<nn::RNN>(nn::RNN(4, 3), [&](auto& rnn) {
    return std::get<0>(rnn->forward(sequence));
  });
  check_layer<nn::LSTMCell>(nn::LSTMCell(4, 3), [&](auto& cell) {
    return std::get<0>(cell->forward(sequence[0]));
  });
  check_layer<nn::MultiheadAttention>(
      nn::MultiheadAttention(4, 2), [&](auto& attention) {
        return std::get<0>(attention->forward(sequence, sequence, sequence));
      });
}

TEST_CASE("a layer behind an input that requires a gradient is told of") {
  Net net;
  const auto input = leaf({2, 4, 6, 6});
  nn::Conv2d conv(4, 3, 3);
  const auto report = net.first_report(conv(input) + net().sum());
  CHECK(count_of(report) == 2);
  CHECK_THAT(report, !ContainsSubstring("[2, 4, 6, 6]"));
}

TEST_CASE("a layer whose weight is converted first is told of") {
  Net net;
  nn::Linear layer(4, 2);
  const auto report = net.first_report(torch::linear(
      net().to(torch::kDouble),
      layer->weight.to(torch::kDouble),
      layer->bias.to(torch::kDouble)));
  CHECK(count_of(report) == 2);
}

TEST_CASE("bare tensors behind a layer are told of in the first backward") {
  Net net;
  const auto tell = [&](const at::Tensor& loss, const char* operation) {
    const auto report = net.first_report(loss);
    INFO(report);
    CHECK(count_of(report) == 1);
    CHECK_THAT(report, ContainsSubstring(operation));
  };
  tell(net() * leaf({4}), "used by MulBackward0");
  tell(net() + leaf({1, 4}), "used by AddBackward0");
  tell(torch::relu(net()) / leaf({4}), "used by DivBackward0");
  tell(net().view({5, 2, 2}) * leaf({2, 1}), "used by MulBackward0");
  tell(net().view({5, 2, 2}) + leaf({1, 2, 1}), "used by AddBackward0");
  tell(net() * leaf({4}).unsqueeze(0), "used by MulBackward0");
  tell(torch::relu(net()).mm(leaf({4, 4})), "used by MmBackward0");
  tell(
      torch::addmm(torch::zeros(2), net(), leaf({4, 2})),
      "used by AddmmBackward0");
  const auto row = leaf({4});
  tell((net() * row + row) * row, "used by MulBackward0, AddBackward0");
}

TEST_CASE("inputs and what is there for their gradient are not told of") {
  Net net;
  const auto none = [&](const at::Tensor& loss) {
    CHECK(net.first_report(loss) == "");
  };
  const auto data = torch::randn({5, 3});
  const auto layer = [&](const at::Tensor& x) { return net.stem(x); };
  const auto input = leaf({5, 3});
  none(layer(input)); // a saliency map
  none(layer(data + leaf({5, 3}))); // an adversarial perturbation
  none(layer(data + leaf({1, 3}))); // one for all
  none(net() + leaf({5, 4})); // one of what the layer gives
  none(net() * leaf({5, 1})); // a weight for each sample
  none(net() * leaf({5}).unsqueeze(1));
  none(torch::mse_loss(net(), leaf({5, 4}))); // a target
  none(leaf({5, 4}).exp() * leaf({4}) + net()); // both before any layer
  // What a checkpointed part of a net is given, as a bias by positions.
  none(net().view({5, 2, 2}) + leaf({1, 2, 2}));
  none(net().view({5, 2, 2}) + leaf({2, 2}));
  none(net() * leaf({})); // a number to differentiate by
  none(net() * leaf({1}));
  none(torch::cat({net(), leaf({5, 2})}, 1)); // a latent input
  none(torch::cat({net(), leaf({1, 4})}, 0)); // a sample beside a batch
  none(torch::randn({2, 5}).mm(leaf({5, 4})) + net().sum()); // measured
  none(net().exp() + leaf({5, 4}).pow(2).sum()); // a penalty
  const auto point = leaf({5, 4});
  nn::Linear head(4, 2);
  const UnmanagedLeaves known{unique_parameters(*head), {}};
  net.leaves = known;
  none(head(point)); // joined with the weight, but at the input's place
  none(torch::relu(leaf({5, 4}) * head->weight.exp().sum(0)));
}

TEST_CASE("an input that comes again behind a layer is not told of") {
  Net net;
  const auto x = leaf({1, 3});
  const auto batch = x * torch::rand({5, 1});
  CHECK(net.first_report(x.pow(2) * net.stem(batch).narrow(1, 0, 3)).empty());
  const auto y = leaf({1, 3});
  const auto inner = net.stem(y * torch::rand({5, 1})).narrow(1, 0, 3);
  // Both uses of y: at the beginning, and one row for the batch behind a layer.
  CHECK(net.first_report(inner * y).empty());
}

TEST_CASE("with a physics-informed loss the points are not told of") {
  Net net;
  const auto x = leaf({5, 3});
  const auto u = (x * (1 - x)).sum(1, true) * torch::tanh(net.stem(x));
  const auto slope = torch::autograd::grad(
      {u.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  CHECK(net.first_report(slope.pow(2)).empty());
}

TEST_CASE("embeddings that are leaves are not told of as a linear layer") {
  Net net;
  const auto scale = net().mean();
  const auto a = leaf({5, 4});
  const auto b = leaf({5, 4});
  CHECK(net.first_report(a.mm(b.t()) * scale).empty());
  CHECK(net.first_report(net.stem->weight.mm(leaf({5, 3}).t())).empty());
}

TEST_CASE("what the first backward does not prove the second one tells") {
  Net net;
  const auto row = leaf({4});
  const auto table = leaf({5, 4});
  const auto loss = [&] { return net() * row + table; };
  const auto first = net.first_report(loss());
  CHECK_THAT(first, ContainsSubstring("Float [4] "));
  CHECK_THAT(first, !ContainsSubstring("Float [5, 4] "));
  const auto second = net.first_report(loss());
  CHECK_THAT(second, ContainsSubstring("Float [5, 4] "));
  CHECK_THAT(second, !ContainsSubstring("Float [4] "));
  CHECK(net.first_report(loss()).empty());
}

} // namespace ddp::test::leaf_uses_test
