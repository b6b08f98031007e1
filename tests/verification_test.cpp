#include <ddp/module_state.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

namespace ddp::test::verification_test {

std::string difference(
    const ProcessGroup& group,
    const torch::nn::Module& module,
    const VerificationOptions& options = {}) {
  return error_on_all(
      group, [&] { verify_same_parameters(module, group, options); });
}

std::string difference(const ProcessGroup& group, const NamedTensors& tensors) {
  return error_on_all(
      group, [&] { verify_same_values(tensors, group, "values"); });
}

/// The same for a tensor named x.
std::string difference(const ProcessGroup& group, const torch::Tensor& x) {
  return difference(group, NamedTensors{{"x"}, {x}});
}

std::shared_ptr<BranchNet> equal_nets() {
  torch::manual_seed(3);
  return std::make_shared<BranchNet>();
}

RANKS_TEST("one changed bit on one rank is found and named on all", 4) {
  const auto net = equal_nets();
  REQUIRE(difference(group, *net) == "");
  if (group.rank() == 2) {
    auto bytes = net->right->weight.detach().view(torch::kByte);
    bytes.view({-1})[5].bitwise_xor_(1);
  }
  REQUIRE(
      difference(group, *net) ==
      "the parameters differ between ranks: right.weight (Float [2, 8]) on "
      "rank 2 differs from that on ranks 0, 1 and 3");
}

RANKS_TEST("the first tensor that differs is named, and then a few more") {
  torch::NoGradGuard no_grad;
  const auto net = equal_nets();
  if (group.rank() == 1) {
    net->never->bias.add_(1);
  }
  if (group.rank() != 0) {
    net->left->weight.add_(1);
  }
  REQUIRE_THAT(
      difference(group, *net),
      Has("left.weight (Float [2, 8]) on rank 0 differs from that on "
          "ranks 1 and 2; 1 more tensor differs: never.bias (rank 1)"));
  NamedTensors many;
  for (int64_t i = 0; i < 20; ++i) {
    many.names.push_back("t" + std::to_string(i));
    many.tensors.push_back(torch::full({}, i > 2 ? group.rank() : 0));
  }
  REQUIRE_THAT(
      difference(group, many),
      Has("t3 (Long []) on ranks 1 and 2",
          "16 more tensors differ: t4 (ranks",
          "t11 (ranks 1 and 2), ...") &&
          !Has("t12"));
}

RANKS_TEST("odd are the ranks that hold something else than most do", 4) {
  const auto named = [&](const std::vector<int64_t>& by_rank) {
    return difference(group, torch::full({3}, by_rank[group.rank()]));
  };
  REQUIRE_THAT(
      named({5, 6, 7, 5}),
      Has("on ranks 1 and 2 differs from that on ranks 0 and 3"));
  REQUIRE_THAT(
      named({5, 6, 6, 7}),
      Has("on ranks 0 and 3 differs from that on ranks 1 and 2"));
  // Two groups of equal size.
  REQUIRE_THAT(
      named({7, 6, 6, 7}),
      Has("on ranks 1 and 2 differs from that on ranks 0 and 3"));
  REQUIRE_THAT(
      named({8, 7, 6, 5}), Has("on ranks 1-3 differs from that on rank 0"));
}

RANKS_TEST("gradients and buffers are compared if asked for") {
  torch::nn::BatchNorm1d norm(4);
  set_gradients(*norm);
  norm->bias.mutable_grad() = torch::Tensor();
  const auto gradients = VerificationOptions().gradients(true);
  const auto all = VerificationOptions().gradients(true).buffers(true);
  REQUIRE(difference(group, *norm, all) == "");
  if (group.rank() == 1) {
    norm->running_var.add_(1);
  }
  REQUIRE(difference(group, *norm, gradients) == "");
  REQUIRE(
      difference(group, *norm, VerificationOptions().buffers(true)) ==
      "the parameters and buffers differ between ranks: running_var (Float "
      "[4]) on rank 1 differs from that on ranks 0 and 2");
  if (group.rank() == 2) {
    norm->weight.mutable_grad().add_(1);
  }
  REQUIRE(difference(group, *norm) == "");
  REQUIRE(
      difference(group, *norm, all) ==
      "the parameters, gradients and buffers differ between ranks: the "
      "gradient of weight (Float [4]) on rank 2 differs from that on "
      "ranks 0 and 1; 1 more tensor differs: running_var (rank 1)");
}

RANKS_TEST("a gradient that is not there on a rank is a difference") {
  const auto net = equal_nets();
  set_gradients(*net);
  if (group.rank() == 1) {
    net->left->bias.mutable_grad() = torch::Tensor();
  }
  REQUIRE(
      difference(group, *net, VerificationOptions().gradients(true)) ==
      "the parameters and gradients differ between ranks: the gradient of "
      "left.bias (Float [2] on ranks 0 and 2; undefined on rank 1) on rank 1 "
      "differs from that on ranks 0 and 2");
}

RANKS_TEST("values are compared by their bits") {
  const auto on_rank_2 = [&](const torch::Tensor& x, const torch::Tensor& y) {
    return difference(group, group.rank() == 2 ? x : y);
  };
  REQUIRE(on_rank_2(torch::tensor(-0.0), torch::tensor(0.0)) != "");
  const auto nan = torch::full({3}, NAN);
  REQUIRE(difference(group, nan.clone()) == "");
  const auto other_nan = torch::full({3}, 0x7fc00001, torch::kInt32);
  REQUIRE(on_rank_2(nan, other_nan.view(torch::kFloat)) != "");
  // The same bytes, but another meaning.
  REQUIRE_THAT(
      on_rank_2(torch::zeros({2, 3}), torch::zeros({3, 2})),
      Has("x (Float [3, 2] on ranks 0 and 1; Float [2, 3] on rank 2)"));
  REQUIRE(on_rank_2(torch::zeros(1, torch::kInt), torch::zeros(1)) != "");
  // Other bytes, but the same values.
  const auto x = torch::randn({3, 4}).fill_(2).triu();
  REQUIRE(on_rank_2(x, x.t().contiguous().t()) == "");
  const auto z = torch::complex(x, x);
  REQUIRE(on_rank_2(torch::conj(z), torch::conj_physical(z)) == "");
  REQUIRE(on_rank_2(torch::conj(z), z) != "");
}

RANKS_TEST("tensors of any dtype and layout are compared") {
  for (const auto& tensor : ones_of_all_kinds()) {
    CAPTURE(tensor.toString());
    REQUIRE(difference(group, tensor.clone()) == "");
    const auto odd = group.rank() == 1 ? torch::zeros_like(tensor) : tensor;
    REQUIRE_THAT(
        difference(group, odd),
        Has("on rank 1 differs from that on ranks 0 and 2"));
  }
  REQUIRE(difference(group, torch::empty({0, 3})) == "");
  REQUIRE(difference(group, torch::Tensor()) == "");
  REQUIRE(difference(group, NamedTensors{}) == "");
  REQUIRE(difference(group, sparse(torch::ones(3), group.rank())) != "");
}

RANKS_TEST("lists of other names or lengths are an error on all ranks", 4) {
  const bool odd = group.rank() == 2;
  const auto one = torch::ones(1);
  NamedTensors tensors{{"a", "b"}, {one, one}};
  if (odd) {
    tensors = {{"a", "b", "c"}, {one, one, one}};
  }
  REQUIRE(
      difference(group, tensors) ==
      "the values are not the same list on all ranks:\n  rank 2 (3 tensors) "
      "has 'c' as tensor 2, ranks 0, 1 and 3 (2 tensors) have none");
  REQUIRE_THAT(
      difference(group, odd ? NamedTensors{} : tensors),
      Has("rank 2 (0 tensors) has none as tensor 0, ranks 0, 1 and 3 (2 "
          "tensors) have 'a'"));
  tensors = {{"a", odd ? "x" : "b"}, {one, one}};
  REQUIRE_THAT(difference(group, tensors), Has("has 'x' as tensor 1"));
  // Lines that look alike.
  tensors = {{"a\nb"}, {one}};
  if (odd) {
    tensors = {{"a", "b"}, {one, one}};
  }
  REQUIRE_THAT(difference(group, tensors), Has("same list"));
  REQUIRE_THROWS_WITH(
      verify_same_parameters(
          BranchNet(), group, VerificationOptions().gradients(odd)),
      Has("rank 2 (16 tensors) has 'the gradient of stem."));
}

TEST_CASE("ranks are named in ranges") {
  using detail::name_ranks;
  REQUIRE(name_ranks({3}) == "rank 3");
  REQUIRE(name_ranks({0, 1}) == "ranks 0 and 1");
  REQUIRE(name_ranks({0, 1, 3}) == "ranks 0, 1 and 3");
  REQUIRE(name_ranks({0, 1, 2}) == "ranks 0-2");
  REQUIRE(name_ranks({0, 1, 2, 4, 5, 6, 7}) == "ranks 0-2 and 4-7");
  REQUIRE(name_ranks({1, 3, 4, 8, 9, 10, 12}) == "ranks 1, 3, 4, 8-10 and 12");
}

TEST_CASE("the parameter hash depends on each value and name") {
  const auto net = equal_nets();
  const auto hash = parameter_hash(*net);
  REQUIRE(parameter_hash(*equal_nets()) == hash);
  {
    torch::NoGradGuard no_grad;
    net->never->bias[1] += 1;
  }
  REQUIRE(parameter_hash(*net) != hash);
}

RANKS_TEST("broadcast_tensors keeps values of mixed dtypes and layouts") {
  torch::manual_seed(group.rank());
  const auto make = [] {
    return std::vector<at::Tensor>{
        torch::randn({3, 4}),
        torch::randint(1000, {5}, torch::kLong),
        torch::randn({4, 3}).t(),
        torch::randn({}, torch::kDouble),
        torch::empty({0}),
        torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
        torch::tensor({true, false})};
  };
  auto tensors = make();
  tensors[0].requires_grad_();
  const auto version = tensors[0]._version();
  const auto strides = tensors[5].strides().vec();
  broadcast_tensors(tensors, group);
  torch::manual_seed(0);
  const auto expected = make();
  for (size_t i = 0; i < tensors.size(); ++i) {
    REQUIRE(tensors[i].equal(expected[i]));
  }
  REQUIRE(tensors[0]._version() == version);
  REQUIRE(tensors[5].strides().vec() == strides);
}

RANKS_TEST("broadcast_tensors sends more than fits one message", 2) {
  std::vector<at::Tensor> tensors;
  for (const int64_t mebibytes : {1, 140, 130, 2}) {
    tensors.push_back(
        torch::full({mebibytes << 20}, group.rank() + 1, torch::kByte));
  }
  broadcast_tensors(tensors, group);
  for (const auto& tensor : tensors) {
    REQUIRE(tensor.eq(1).all().item<bool>());
  }
}

RANKS_TEST("broadcast_buffers leaves the parameters alone") {
  torch::nn::BatchNorm1d norm(4);
  torch::NoGradGuard no_grad;
  norm->running_mean.fill_(group.rank() + 1);
  norm->weight.fill_(group.rank());
  broadcast_buffers(*norm, group);
  REQUIRE(norm->running_mean.eq(1).all().item<bool>());
  REQUIRE(norm->weight.eq(group.rank()).all().item<bool>());
}

} // namespace ddp::test::verification_test
