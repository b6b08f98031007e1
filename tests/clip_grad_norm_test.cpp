#include <tests/support/examples.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ATen/record_function.h>
#include <ddp/reducer.h>

namespace ddp::test::clip_grad_norm_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// LibTorch's clipping, in double precision, of the existing gradients.
struct Copies {
  std::vector<at::Tensor> parameters;

  explicit Copies(const std::vector<at::Tensor>& originals) {
    for (const auto& original : originals) {
      auto copy = torch::zeros_like(original, torch::kDouble);
      if (original.grad().defined()) {
        copy.mutable_grad() =
            original.grad().to_dense().to(torch::kDouble, false, /*copy=*/true);
      }
      parameters.push_back(copy);
    }
  }

  void require_near(const std::vector<at::Tensor>& originals) const {
    for (size_t i = 0; i < originals.size(); ++i) {
      const auto& grad = originals[i].grad();
      const auto& expected = parameters[i].grad();
      REQUIRE(grad.defined() == expected.defined());
      if (grad.defined()) {
        REQUIRE(torch::allclose(
            grad.to_dense().to(torch::kDouble), expected, 1e-5, 1e-12));
      }
    }
  }
};

void compare(
    Reducer& reducer,
    const std::vector<at::Tensor>& parameters,
    double max_norm,
    double norm_type) {
  const Copies copies(parameters);
  const auto expected =
      torch::nn::utils::clip_grad_norm_(copies.parameters, max_norm, norm_type);
  const auto norm = reducer.clip_grad_norm(max_norm, norm_type);
  INFO("norm " << norm_type << ": " << norm.item<double>() / expected - 1);
  REQUIRE(is_near(norm.item<double>(), expected, 1e-5));
  copies.require_near(parameters);
}

/// Counts the calls of an operator during this object's life.
class Calls {
 public:
  explicit Calls(const std::string& name) {
    wanted() = name;
    count() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function)
                -> std::unique_ptr<at::ObserverContext> {
              count() += function.name() == wanted();
              return nullptr;
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~Calls() {
    at::removeCallback(handle_);
  }
  static int& count() {
    static int value = 0;
    return value;
  }

 private:
  static std::string& wanted() {
    static std::string value;
    return value;
  }
  at::CallbackHandle handle_;
};

RANKS_TEST("gradients are clipped by their norm over all buckets", {3, 4}) {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, ReducerOptions().bucket_cap_mb(0.5));
  int step = 0;
  for (const double type : {2., 1., 3., kInfinity}) {
    for (const double max_norm : {1e-2, 1e6}) {
      reset_gradients(*net);
      net->forward(batch(group, step++, 7)).sum().backward();
      compare(reducer, net->parameters(), max_norm, type);
    }
  }
  REQUIRE(reducer.buckets().size() == 2);
}

RANKS_TEST("clipping makes one pass per bucket, not per parameter") {
  auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, ReducerOptions().bucket_cap_mb(0.5));
  for (int step = 0; step < 2; ++step) {
    net->forward(batch(group, step, 7)).sum().backward();
  }
  REQUIRE(reducer.buckets().size() == 2);
  {
    const Calls norms("aten::linalg_vector_norm");
    reducer.clip_grad_norm(1e-3);
    // For each bucket its rows and the rest, and one for all; there are 6
    // parameters.
    REQUIRE(norms.count() == 2 * 2 + 1);
  }
  const Calls products("aten::mul_");
  reducer.clip_grad_norm(1e-6);
  REQUIRE(products.count() == 2);
}

RANKS_TEST(
    "clipping leaves out what no rank used, and takes what lies elsewhere") {
  auto net = std::make_shared<BranchNet>();
  Reducer reducer(net, group);
  const auto parameters = net->parameters();
  for (int step = 0; step < 3; ++step) {
    reset_gradients(*net);
    net->forward(batch(group, step, 4), true).sum().backward();
    REQUIRE(!net->right->weight.grad().defined());
    if (step == 2) { // the program's own gradient
      net->left->bias.mutable_grad() = torch::ones({2}) * 100;
    }
    compare(reducer, parameters, 0.1, 2);
  }
  {
    const auto guard = reducer.no_sync();
    net->forward(batch(group, 3, 4), false).sum().backward();
    compare(reducer, parameters, 0.1, 2);
  }
  // Clipping does not use a parameter: globally unused ones stay unchanged.
  const auto before = net->never->weight.grad();
  net->forward(batch(group, 4, 4), true).sum().backward();
  REQUIRE(!before.defined());
  compare(reducer, parameters, 0.1, 2);
}

RANKS_TEST("clipping of sparse gradients and of several types") {
  WordNet net;
  Reducer reducer(net, group);
  net->forward(torch::tensor({1, 2, 1}) + group.rank(), true).sum().backward();
  REQUIRE(net->table->weight.grad().is_sparse());
  compare(reducer, net->parameters(), 0.1, 2);

  auto wide = torch::ones({5}, torch::kDouble).requires_grad_();
  auto narrow = torch::ones({3}, torch::kBFloat16).requires_grad_();
  Reducer mixed({wide, narrow}, group);
  ((wide * 3).sum() + (narrow * 4).sum()).backward();
  const auto norm = mixed.clip_grad_norm(1).item<double>();
  REQUIRE(is_near(norm, std::sqrt(5 * 9. + 3 * 16.)));
  REQUIRE(is_near(wide.grad()[0].item<double>(), 3 / norm));
  REQUIRE(is_near(narrow.grad()[0].item<float>(), 4 / norm, 1e-2));
}

TEST_CASE("clipping in a group of one, and of sparse gradients as they come") {
  WordNet net;
  Reducer reducer(net, ProcessGroup());
  CHECK(reducer.clip_grad_norm(1).item<double>() == 0);
  net->forward(torch::tensor({1, 1, 1}), true).sum().backward();
  compare(reducer, net->parameters(), 0.1, 2);
}

TEST_CASE("an infinite norm may be refused") {
  auto weight = torch::ones({2}).requires_grad_();
  Reducer reducer({weight}, ProcessGroup());
  weight.mutable_grad() = torch::full({2}, kInfinity);
  CHECK_THROWS_WITH(
      reducer.clip_grad_norm(1, 2, /*error_if_nonfinite=*/true), Has("inf"));
  CHECK(reducer.clip_grad_norm(1).item<double>() == kInfinity);
  CHECK_THROWS_AS(reducer.clip_grad_norm(1, 0), c10::ValueError);
}

} // namespace ddp::test::clip_grad_norm_test
