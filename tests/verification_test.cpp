#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/detail/rank_report.h>
#include <ddp/seed.h>
#include <ddp/verification.h>

using ddp::NamedTensors;
using ddp::ProcessGroup;
using ddp::VerificationOptions;
using ddp::test::BranchNet;
using ddp::test::ranks;

namespace {

/// The words of the `c10::ValueError` that `check` throws on every rank, or
/// none where it throws on no rank.
template <typename Check>
std::string error_on_all(const ProcessGroup& group, Check&& check) {
  std::string error;
  try {
    check();
  } catch (const c10::ValueError& thrown) {
    error = thrown.what_without_backtrace();
  }
  for (const auto& other : group.all_gather(error)) {
    REQUIRE(other == error);
  }
  return error;
}

std::string difference(
    const ProcessGroup& group,
    const torch::nn::Module& module,
    const VerificationOptions& options = {}) {
  return error_on_all(
      group, [&] { ddp::verify_same_parameters(module, group, options); });
}

std::string difference(const ProcessGroup& group, const NamedTensors& tensors) {
  return error_on_all(
      group, [&] { ddp::verify_same_values(tensors, group, "values"); });
}

/// The same for a tensor named x.
std::string difference(const ProcessGroup& group, const torch::Tensor& x) {
  return difference(group, NamedTensors{{"x"}, {x}});
}

std::string not_finite(const ProcessGroup& group, const NamedTensors& tensors) {
  return error_on_all(
      group, [&] { ddp::verify_finite(tensors, group, "values"); });
}

std::string not_finite(const ProcessGroup& group, const torch::Tensor& x) {
  return not_finite(group, NamedTensors{{"x"}, {x}});
}

std::shared_ptr<BranchNet> equal_nets() {
  torch::manual_seed(3);
  return std::make_shared<BranchNet>();
}

void set_gradients(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) {
    parameter.mutable_grad() = torch::ones_like(parameter);
  }
}

/// Ones (2 x 3) of every dtype that has them.
std::vector<torch::Tensor> ones_of_all_dtypes() {
  std::vector<torch::Tensor> tensors;
  for (const auto dtype :
       {torch::kBool,
        torch::kUInt8,
        torch::kInt8,
        torch::kInt16,
        torch::kInt32,
        torch::kInt64,
        torch::kUInt16,
        torch::kUInt32,
        torch::kUInt64,
        torch::kHalf,
        torch::kBFloat16,
        torch::kFloat,
        torch::kDouble,
        torch::kComplexHalf,
        torch::kComplexFloat,
        torch::kComplexDouble,
        torch::kFloat8_e4m3fn,
        torch::kFloat8_e5m2}) {
    tensors.push_back(torch::ones({2, 3}).to(dtype));
  }
  return tensors;
}

torch::Tensor sparse(const torch::Tensor& values, int64_t first = 0) {
  const auto indices = torch::arange(first, first + values.size(0));
  return torch::sparse_coo_tensor(indices.unsqueeze(0), values, {100});
}

} // namespace

TEST_CASE("one changed bit on one rank is found and named on all") {
  ranks(4, [](ProcessGroup group) {
    const auto net = equal_nets();
    REQUIRE(difference(group, *net) == "");
    if (group.rank() == 2) {
      auto bytes = net->right->weight.detach().view(torch::kByte);
      bytes.view({-1})[5].bitwise_xor_(1);
    }
    REQUIRE(
        difference(group, *net) ==
        "the parameters differ between ranks: right.weight (Float [2, 8]) on "
        "rank 2 is not what ranks 0, 1 and 3 have");
  });
}

TEST_CASE("the first tensor that differs is named, and then a few more") {
  ranks(3, [](ProcessGroup group) {
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
        ContainsSubstring(
            "left.weight (Float [2, 8]) on rank 0 is not what ranks 1 and 2 "
            "have; 1 more tensor differs: never.bias (rank 1)"));
    NamedTensors many;
    for (int64_t i = 0; i < 20; ++i) {
      many.names.push_back("t" + std::to_string(i));
      many.tensors.push_back(torch::full({}, i > 2 ? group.rank() : 0));
    }
    const auto error = difference(group, many);
    REQUIRE_THAT(error, ContainsSubstring("t3 (Long []) on ranks 1 and 2"));
    REQUIRE_THAT(error, ContainsSubstring("16 more tensors differ: t4 (ranks"));
    REQUIRE_THAT(error, ContainsSubstring("t11 (ranks 1 and 2), ..."));
    REQUIRE_THAT(error, !ContainsSubstring("t12"));
  });
}

TEST_CASE("odd are the ranks that hold something else than most do") {
  ranks(4, [](ProcessGroup group) {
    const auto named = [&](const std::vector<int64_t>& by_rank) {
      return difference(group, torch::full({3}, by_rank[group.rank()]));
    };
    REQUIRE_THAT(
        named({5, 6, 7, 5}),
        ContainsSubstring("on ranks 1 and 2 is not what ranks 0 and 3 have"));
    REQUIRE_THAT(
        named({5, 6, 6, 7}),
        ContainsSubstring("on ranks 0 and 3 is not what ranks 1 and 2 have"));
    // As many on one side as on the other.
    REQUIRE_THAT(
        named({7, 6, 6, 7}),
        ContainsSubstring("on ranks 1 and 2 is not what ranks 0 and 3 have"));
    REQUIRE_THAT(
        named({8, 7, 6, 5}),
        ContainsSubstring("on ranks 1-3 is not what rank 0 has"));
  });
}

TEST_CASE("gradients and buffers are compared if asked for") {
  ranks(3, [](ProcessGroup group) {
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
        "[4]) on rank 1 is not what ranks 0 and 2 have");
    if (group.rank() == 2) {
      norm->weight.mutable_grad().add_(1);
    }
    REQUIRE(difference(group, *norm) == "");
    REQUIRE(
        difference(group, *norm, all) ==
        "the parameters, gradients and buffers differ between ranks: the "
        "gradient of weight (Float [4]) on rank 2 is not what ranks 0 and 1 "
        "have; 1 more tensor differs: running_var (rank 1)");
  });
}

TEST_CASE("a gradient that is not there on a rank is a difference") {
  ranks(3, [](ProcessGroup group) {
    const auto net = equal_nets();
    set_gradients(*net);
    if (group.rank() == 1) {
      net->left->bias.mutable_grad() = torch::Tensor();
    }
    REQUIRE(
        difference(group, *net, VerificationOptions().gradients(true)) ==
        "the parameters and gradients differ between ranks: the gradient of "
        "left.bias (Float [2] on ranks 0 and 2; undefined on rank 1) on rank 1 "
        "is not what ranks 0 and 2 have");
  });
}

TEST_CASE("values are compared by their bits") {
  ranks(3, [](ProcessGroup group) {
    const auto on_rank_2 = [&](const torch::Tensor& x, const torch::Tensor& y) {
      return difference(group, group.rank() == 2 ? x : y);
    };
    REQUIRE(on_rank_2(torch::tensor(-0.0), torch::tensor(0.0)) != "");
    const auto nan = torch::full({3}, NAN);
    REQUIRE(difference(group, nan.clone()) == "");
    const auto other_nan = torch::full({3}, 0x7fc00001, torch::kInt32);
    REQUIRE(on_rank_2(nan, other_nan.view(torch::kFloat)) != "");
    // The same bytes, but something else.
    REQUIRE_THAT(
        on_rank_2(torch::zeros({2, 3}), torch::zeros({3, 2})),
        ContainsSubstring("x (Float [2, 3] on rank 2; Float [3, 2] on ranks"));
    REQUIRE(on_rank_2(torch::zeros(1, torch::kInt), torch::zeros(1)) != "");
    // Other bytes, but the same values.
    const auto x = torch::randn({3, 4}).fill_(2).triu();
    REQUIRE(on_rank_2(x, x.t().contiguous().t()) == "");
    const auto z = torch::complex(x, x);
    REQUIRE(on_rank_2(torch::conj(z), torch::conj_physical(z)) == "");
    REQUIRE(on_rank_2(torch::conj(z), z) != "");
  });
}

TEST_CASE("tensors of any dtype and layout are compared") {
  ranks(3, [](ProcessGroup group) {
    auto tensors = ones_of_all_dtypes();
    tensors.push_back(torch::ones({}));
    tensors.push_back(sparse(torch::ones(3)));
    tensors.push_back(torch::ones({2, 3}).to_sparse_csr());
    for (const auto& tensor : tensors) {
      CAPTURE(tensor.toString());
      REQUIRE(difference(group, tensor.clone()) == "");
      const auto odd = group.rank() == 1 ? torch::zeros_like(tensor) : tensor;
      REQUIRE_THAT(
          difference(group, odd),
          ContainsSubstring("on rank 1 is not what ranks 0 and 2 have"));
    }
    REQUIRE(difference(group, torch::empty({0, 3})) == "");
    REQUIRE(difference(group, torch::Tensor()) == "");
    REQUIRE(difference(group, NamedTensors{}) == "");
    REQUIRE(difference(group, sparse(torch::ones(3), group.rank())) != "");
  });
}

TEST_CASE("lists of other names or lengths are an error on all ranks") {
  ranks(4, [](ProcessGroup group) {
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
        ContainsSubstring(
            "rank 2 (0 tensors) has none as tensor 0, ranks 0, 1 and 3 (2 "
            "tensors) have 'a'"));
    tensors = {{"a", odd ? "x" : "b"}, {one, one}};
    REQUIRE_THAT(
        difference(group, tensors), ContainsSubstring("has 'x' as tensor 1"));
    // Lines that look alike.
    tensors = {{"a\nb"}, {one}};
    if (odd) {
      tensors = {{"a", "b"}, {one, one}};
    }
    REQUIRE_THAT(difference(group, tensors), ContainsSubstring("same list"));
    REQUIRE_THROWS_WITH(
        ddp::verify_same_parameters(
            BranchNet(), group, VerificationOptions().gradients(odd)),
        ContainsSubstring("rank 2 (16 tensors) has 'the gradient of stem."));
  });
}

TEST_CASE("ranks are named in ranges") {
  using ddp::detail::name_ranks;
  REQUIRE(name_ranks({3}) == "rank 3");
  REQUIRE(name_ranks({0, 1}) == "ranks 0 and 1");
  REQUIRE(name_ranks({0, 1, 3}) == "ranks 0, 1 and 3");
  REQUIRE(name_ranks({0, 1, 2}) == "ranks 0-2");
  REQUIRE(name_ranks({0, 1, 2, 4, 5, 6, 7}) == "ranks 0-2 and 4-7");
  REQUIRE(name_ranks({1, 3, 4, 8, 9, 10, 12}) == "ranks 1, 3, 4, 8-10 and 12");
}

TEST_CASE("NaN and infinity on any rank are named on all") {
  ranks(4, [](ProcessGroup group) {
    torch::NoGradGuard no_grad;
    torch::nn::BatchNorm1d norm(4);
    set_gradients(*norm);
    const auto found = [&](const VerificationOptions& options) {
      return error_on_all(
          group, [&] { ddp::verify_finite(*norm, group, options); });
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
        ContainsSubstring("gradients are not finite on rank 1:"));
    if (group.rank() == 3) {
      norm->weight[2] = INFINITY;
    }
    REQUIRE(
        found({}) ==
        "the parameters are not finite on rank 3:\n"
        "  rank 3: weight (Float [4]) has 0 NaN and 1 inf");
  });
}

TEST_CASE("a few of many tensors that are not finite are named") {
  ranks(3, [](ProcessGroup group) {
    NamedTensors tensors;
    for (int64_t i = 0; i < (group.rank() == 1 ? 20 : 1); ++i) {
      tensors.names.push_back("t" + std::to_string(i));
      tensors.tensors.push_back(torch::full({2}, group.rank() ? NAN : 0));
    }
    const auto error = not_finite(group, tensors);
    REQUIRE_THAT(
        error, ContainsSubstring("on ranks 1 and 2:\n  ranks 1 and 2: t0"));
    REQUIRE_THAT(
        error, ContainsSubstring("\n  rank 1: t7 (Float [2]) has 2 NaN"));
    // t8 to t19
    REQUIRE_THAT(error, Catch::Matchers::EndsWith("inf\n  ... and 12 more"));
  });
}

TEST_CASE("tensors of any dtype and layout are checked for NaN") {
  ranks(3, [](ProcessGroup group) {
    auto tensors = ones_of_all_dtypes();
    tensors.push_back(torch::ones({}));
    tensors.push_back(sparse(torch::ones(3)));
    tensors.push_back(torch::ones({2, 3}).to_sparse_csr());
    for (const auto& tensor : tensors) {
      CAPTURE(tensor.toString());
      REQUIRE(not_finite(group, tensor) == "");
      if (!tensor.is_floating_point() && !tensor.is_complex()) {
        continue;
      }
      // Through float: not each dtype can be multiplied.
      const bool real = !tensor.is_complex();
      const auto wide = tensor.to(real ? torch::kFloat : torch::kComplexFloat);
      const auto odd =
          group.rank() == 1 ? (wide * NAN).to(tensor.dtype()) : tensor;
      REQUIRE_THAT(not_finite(group, odd), ContainsSubstring("rank 1: x ("));
    }
    REQUIRE(not_finite(group, torch::empty({0, 3})) == "");
    REQUIRE(not_finite(group, torch::Tensor()) == "");
    REQUIRE(not_finite(group, NamedTensors{}) == "");
  });
}

TEST_CASE("a NaN is found wherever it is, and large values are finite") {
  const ProcessGroup alone;
  const auto counted = [&](const torch::Tensor& x) {
    return not_finite(alone, x);
  };
  for (int64_t i = 0; i < 100; ++i) {
    auto x = torch::zeros(100);
    x[i] = i % 2 ? NAN : -INFINITY;
    REQUIRE_THAT(
        counted(x), ContainsSubstring(i % 2 ? "1 NaN and 0" : "0 NaN and 1"));
    REQUIRE_THAT(counted(x.view({20, 5}).t()), ContainsSubstring("rank 0: x"));
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
  REQUIRE_THAT(counted(z), ContainsSubstring("2 NaN and 2 inf"));
  REQUIRE_THAT(counted(torch::conj(z)), ContainsSubstring("2 NaN and 2 inf"));
  // What a sparse tensor holds is the sum.
  const auto twice = torch::sparse_coo_tensor(
      torch::zeros({1, 2}, torch::kLong), torch::full({2}, 3e38), {4});
  REQUIRE_THAT(counted(twice), ContainsSubstring("0 NaN and 1 inf"));
}

TEST_CASE("the parameter hash depends on each value and name") {
  torch::manual_seed(3);
  const auto net = std::make_shared<BranchNet>();
  const auto hash = ddp::parameter_hash(*net);
  torch::manual_seed(3);
  REQUIRE(ddp::parameter_hash(BranchNet()) == hash);
  {
    torch::NoGradGuard no_grad;
    net->never->bias[1] += 1;
  }
  REQUIRE(ddp::parameter_hash(*net) != hash);
}

TEST_CASE("manual_seed gives every rank rank 0's seed and equal states") {
  ranks(3, [](ProcessGroup group) {
    const uint64_t mine = 0xFFFFFFFF00000000ULL + group.rank();
    REQUIRE(ddp::manual_seed(mine, group) == 0xFFFFFFFF00000000ULL);
    const auto drawn = torch::randn({4});
    for (const auto& other : group.all_gather(drawn)) {
      REQUIRE(other.equal(drawn));
    }
  });
}

TEST_CASE("broadcast_buffers leaves the parameters alone") {
  ranks(3, [](ProcessGroup group) {
    torch::nn::BatchNorm1d norm(4);
    torch::NoGradGuard no_grad;
    norm->running_mean.fill_(group.rank() + 1);
    norm->weight.fill_(group.rank());
    ddp::broadcast_buffers(*norm, group);
    REQUIRE(norm->running_mean.eq(1).all().item<bool>());
    REQUIRE(norm->weight.eq(group.rank()).all().item<bool>());
  });
}
