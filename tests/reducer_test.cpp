#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>

using ddp::ProcessGroup;
using ddp::Reducer;
using ddp::ReducerOptions;
using ddp::test::batch;
using ddp::test::BranchNet;
using ddp::test::copy_parameters;
using ddp::test::ranks;
using ddp::test::UnevenNet;

namespace {

void reset_gradients(const torch::nn::Module& net) {
  for (auto& parameter : net.parameters()) {
    parameter.mutable_grad().reset();
  }
}

/// The gradients that one process would find from the ranks' local ones.
std::vector<at::Tensor> average(
    const ProcessGroup& group,
    const torch::nn::Module& local) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : local.parameters()) {
    auto grad = parameter.grad().defined() ? parameter.grad().clone()
                                           : torch::zeros_like(parameter);
    group.all_reduce(grad, ddp::ReduceOp::kMean);
    result.push_back(grad);
  }
  return result;
}

} // namespace

TEST_CASE("a gradient is the mean over ranks") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    auto local = std::make_shared<UnevenNet>();
    Reducer reducer(net, group);
    copy_parameters(*net, *local);
    for (int step = 0; step < 3; ++step) {
      reset_gradients(*net);
      reset_gradients(*local);
      const auto input = batch(group, step, 7);
      net->forward(input).sum().backward();
      local->forward(input).sum().backward();
      const auto expected = average(group, *local);
      for (size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(torch::allclose(net->parameters()[i].grad(), expected[i]));
      }
    }
  });
}

TEST_CASE("buckets are rebuilt in the order in which gradients come") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    Reducer reducer(net, group);
    using Buckets = std::vector<ddp::BucketIndices>;
    REQUIRE(reducer.buckets() == Buckets{{0, 1, 2, 3, 4, 5}});
    net->forward(batch(group, 0, 7)).sum().backward();
    // 1 MiB closes the first with the wide weight.
    REQUIRE(reducer.buckets() == Buckets{{5, 4, 3, 2}, {1, 0}});
  });
}

TEST_CASE("ranks may use different parameters") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<BranchNet>();
    auto local = std::make_shared<BranchNet>();
    Reducer reducer(net, group);
    copy_parameters(*net, *local);
    for (int step = 0; step < 4; ++step) {
      reset_gradients(*net);
      reset_gradients(*local);
      const auto input = batch(group, step, 4);
      // Ranks take different branches, except in step 2, where all go left.
      const bool left = step == 2 || (group.rank() + step) % 2 == 0;
      net->forward(input, left).sum().backward();
      local->forward(input, left).sum().backward();
      const auto expected = average(group, *local);
      const auto parameters = net->named_parameters();
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto& name = parameters[i].key();
        const auto& grad = parameters[i].value().grad();
        INFO("step " << step << ", " << name);
        const bool unused = name.rfind("never", 0) == 0 ||
            (step == 2 && name.rfind("right", 0) == 0);
        REQUIRE(grad.defined() == !unused);
        if (!unused) {
          REQUIRE(torch::allclose(grad, expected[i]));
        }
      }
    }
  });
}

TEST_CASE("what no rank used keeps its gradient") {
  ranks(4, [](ProcessGroup group) { // a power of two: the mean is exact
    auto net = std::make_shared<BranchNet>();
    Reducer reducer(net, group);
    const auto& unused = net->right->weight;
    for (int step = 0; step < 3; ++step) {
      net->forward(batch(group, step, 4), false).sum().backward();
      const auto before = unused.grad().clone();
      net->forward(batch(group, step, 4), true).sum().backward();
      REQUIRE(unused.grad().equal(before));
    }
  });
}

TEST_CASE("a gradient that was there is averaged, used or not") {
  ranks(3, [](ProcessGroup group) {
    auto weight = torch::ones({2}, torch::requires_grad());
    auto other = torch::ones({2}, torch::requires_grad());
    Reducer reducer({weight, other}, group);
    for (int step = 0; step < 2; ++step) { // before and after rebuilding
      weight.mutable_grad().reset();
      (weight.sum() * 9 + other.sum()).backward();
      auto loss = other.sum();
      if (group.rank() == 0) {
        loss = loss + weight.sum() * 3;
      }
      loss.backward();
      REQUIRE(torch::allclose(weight.grad(), torch::full({2}, 10.0)));
    }
  });
}

TEST_CASE("Reducers that share a backward do not wait for each other") {
  ranks(2, [](ProcessGroup group) {
    std::vector<at::Tensor> a, b;
    for (int i = 0; i < 2; ++i) {
      a.push_back(torch::ones({3}, torch::requires_grad()));
      b.push_back(torch::ones({3}, torch::requires_grad()));
    }
    Reducer first(a, group);
    Reducer second(b, group);
    for (int step = 0; step < 3; ++step) {
      // The ranks reach the two in different order, and half of each not.
      const auto loss = group.rank() == 0 ? (a[0] * (b[0] * 2)).sum()
                                          : ((a[0] * 2) * b[0]).sum();
      loss.backward();
    }
    REQUIRE(a[0].grad().defined());
    REQUIRE(!a[1].grad().defined());
  });
}

TEST_CASE("a gradient of zero is not taken for an unused parameter") {
  ranks(3, [](ProcessGroup group) {
    auto weight = torch::ones({4}, torch::requires_grad());
    auto other = torch::ones({4}, torch::requires_grad());
    Reducer reducer({weight, other}, group);
    // Rank 0 alone uses `weight`, and its gradient is exactly zero, or minus
    // zero.
    for (const double zero : {0.0, -0.0}) {
      weight.mutable_grad().reset();
      auto loss = other.sum();
      if (group.rank() == 0) {
        loss = loss + (weight * torch::full({4}, zero)).sum();
      }
      loss.backward();
      REQUIRE(weight.grad().defined());
      REQUIRE(weight.grad().eq(0).all().item<bool>());
    }
  });
}

TEST_CASE("under no_sync gradients accumulate and are reduced once") {
  ranks(3, [](ProcessGroup group) {
    for (const bool rebuilt : {false, true}) {
      auto net = std::make_shared<UnevenNet>();
      auto local = std::make_shared<UnevenNet>();
      Reducer reducer(net, group);
      copy_parameters(*net, *local);
      if (rebuilt) {
        net->forward(batch(group, 9, 7)).sum().backward();
        reset_gradients(*net);
      }
      for (int step = 0; step < 3; ++step) {
        auto guard = std::make_optional(reducer.no_sync());
        REQUIRE(!reducer.synchronizes());
        if (step == 2) {
          guard.reset();
          REQUIRE(reducer.synchronizes());
        } else {
          const auto nested = reducer.no_sync();
        }
        const auto input = batch(group, step, 7);
        net->forward(input).sum().backward();
        local->forward(input).sum().backward();
        if (step < 2) {
          REQUIRE(net->wide->weight.grad().equal(local->wide->weight.grad()));
        }
      }
      const auto expected = average(group, *local);
      for (size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(torch::allclose(
            net->parameters()[i].grad(), expected[i], 1e-4, 1e-5));
      }
    }
  });
}

TEST_CASE("what came under no_sync is reduced although not used after it") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<BranchNet>();
    auto local = std::make_shared<BranchNet>();
    Reducer reducer(net, group);
    copy_parameters(*net, *local);
    const auto input = batch(group, 0, 4);
    {
      const auto guard = reducer.no_sync();
      net->forward(input, true).sum().backward();
    }
    net->forward(input, false).sum().backward();
    local->forward(input, true).sum().backward();
    local->forward(input, false).sum().backward();
    const auto expected = average(group, *local);
    REQUIRE(torch::allclose(net->left->weight.grad(), expected[2]));
    REQUIRE(torch::allclose(net->stem->weight.grad(), expected[0], 1e-4, 1e-5));
  });
}

TEST_CASE("all floating-point and complex types, empty and 0-dim parameters") {
  ranks(3, [](ProcessGroup group) {
    std::vector<at::Tensor> parameters;
    for (const auto dtype :
         {torch::kFloat,
          torch::kDouble,
          torch::kHalf,
          torch::kBFloat16,
          torch::kComplexFloat}) {
      parameters.push_back(torch::ones({2, 3}, dtype).requires_grad_());
    }
    parameters.push_back(torch::ones({}).requires_grad_());
    parameters.push_back(torch::ones({0, 4}).requires_grad_());
    parameters.push_back(torch::ones({2, 3, 4, 4})
                             .contiguous(at::MemoryFormat::ChannelsLast)
                             .requires_grad_());
    Reducer reducer(parameters, group);
    for (int step = 0; step < 3; ++step) {
      auto loss = torch::zeros({});
      for (auto& parameter : parameters) {
        parameter.mutable_grad().reset();
        const auto real =
            parameter.is_complex() ? torch::view_as_real(parameter) : parameter;
        loss = loss + (real * (group.rank() + 1)).to(torch::kFloat).sum();
      }
      loss.backward();
      for (const auto& parameter : parameters) {
        INFO(parameter.scalar_type() << " " << parameter.sizes());
        const auto& grad = parameter.grad();
        REQUIRE(grad.scalar_type() == parameter.scalar_type());
        REQUIRE(grad.strides() == parameter.strides());
        const auto real = grad.is_complex() ? torch::view_as_real(grad) : grad;
        REQUIRE(torch::allclose(
            real.to(torch::kDouble),
            torch::full_like(real, 2.0, torch::kDouble),
            1e-2));
      }
    }
  });
}

TEST_CASE("a parameter registered twice is reduced once") {
  ranks(3, [](ProcessGroup group) {
    auto linear = torch::nn::Linear(3, 3);
    torch::nn::Sequential net(linear, linear);
    Reducer reducer(net, group);
    REQUIRE(reducer.buckets()[0].size() == 2);
    net->forward(torch::ones({1, 3})).sum().backward();
    auto sum = linear->weight.grad().clone();
    group.all_reduce(sum, ddp::ReduceOp::kMean);
    REQUIRE(torch::allclose(sum, linear->weight.grad()));
  });
}

TEST_CASE("frozen parameters are left alone") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    net->wide->weight.set_requires_grad(false);
    Reducer reducer(net, group);
    net->forward(batch(group, 0, 7)).sum().backward();
    REQUIRE(!net->wide->weight.grad().defined());
    REQUIRE(net->first->weight.grad().defined());
  });
}

TEST_CASE("construction gives every rank rank 0's values") {
  ranks(3, [](ProcessGroup group) {
    torch::manual_seed(group.rank());
    auto net = std::make_shared<UnevenNet>();
    net->wide->weight.set_requires_grad(false); // frozen ones too
    net->register_buffer("count", torch::full({2}, group.rank()));
    Reducer reducer(net, group);
    torch::manual_seed(0);
    const UnevenNet expected;
    for (size_t i = 0; i < expected.parameters().size(); ++i) {
      REQUIRE(net->parameters()[i].equal(expected.parameters()[i]));
    }
    REQUIRE(net->named_buffers()["count"].eq(0).all().item<bool>());
  });
}

TEST_CASE("ranks with different models are told, all of them, by name") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<BranchNet>();
    if (group.rank() == 2) {
      net->left->bias = net->left->register_parameter(
          "extra", torch::zeros({3, 2}, torch::kDouble));
    }
    REQUIRE_THROWS_WITH(
        Reducer(net, group),
        ContainsSubstring("rank 2 has as parameter 4 left.extra") &&
            ContainsSubstring("rank 0 has right.weight"));
    auto wider =
        std::make_shared<torch::nn::LinearImpl>(2, group.rank() == 1 ? 4 : 3);
    REQUIRE_THROWS_WITH(
        Reducer(wider, group),
        ContainsSubstring("rank 1 has as parameter 0 weight Float [4, 2]") &&
            ContainsSubstring("rank 0 has weight Float [3, 2]"));
    auto frozen = std::make_shared<BranchNet>();
    frozen->right->weight.set_requires_grad(group.rank() != 2);
    REQUIRE_THROWS_WITH(
        Reducer(frozen, group),
        ContainsSubstring("rank 2 has as parameter 4 right.weight") &&
            ContainsSubstring(", trainable"));
    auto same = std::make_shared<BranchNet>();
    REQUIRE_THROWS_WITH(
        Reducer(
            same, group, ReducerOptions().bucket_cap_mb(1.0 + group.rank())),
        ContainsSubstring("rank 1 has options"));
  });
}

TEST_CASE("a model without trainable parameters is refused") {
  const ProcessGroup alone;
  auto frozen = std::make_shared<UnevenNet>();
  for (auto& parameter : frozen->parameters()) {
    parameter.set_requires_grad(false);
  }
  REQUIRE_THROWS_WITH(
      Reducer(frozen, alone),
      ContainsSubstring("no parameter requires a gradient"));
  REQUIRE_THROWS_WITH(
      Reducer({torch::ones({2})}, alone), ContainsSubstring("parameter 0"));
  REQUIRE_THROWS_WITH(
      Reducer(
          std::make_shared<UnevenNet>(),
          alone,
          ReducerOptions().bucket_cap_mb(0)),
      ContainsSubstring("bucket_cap_mb"));
}

TEST_CASE("a destroyed or moved Reducer is off its parameters") {
  ranks(3, [](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    const auto mine = [&] {
      reset_gradients(*net);
      net->forward(torch::full({1, 7}, 1.0 * group.rank())).sum().backward();
      return net->first->weight.grad().clone();
    };
    {
      Reducer first(net, group);
      Reducer second(std::move(first));
      const auto averaged = mine();
      auto check = averaged.clone();
      group.all_reduce(check, ddp::ReduceOp::kMax);
      REQUIRE(check.equal(averaged));
    }
    const auto local = mine();
    REQUIRE((group.rank() > 0) == local.any().item<bool>());
  });
}

TEST_CASE("after an exception in backward the next one says so") {
  ranks(2, [](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    Reducer reducer(net, group);
    const auto hook = net->first->weight.register_hook(
        [](at::Tensor) -> at::Tensor { TORCH_CHECK(false, "on purpose"); });
    REQUIRE_THROWS_WITH(
        net->forward(torch::ones({1, 7})).sum().backward(),
        ContainsSubstring("on purpose"));
    net->first->weight.remove_hook(hook);
    REQUIRE_THROWS_WITH(
        net->forward(torch::ones({1, 7})).sum().backward(),
        ContainsSubstring("construct the Reducer anew"));
  });
}

TEST_CASE("what is not supported is refused, not done wrong") {
  ranks(2, [](ProcessGroup group) {
    auto weight = torch::ones({3}, torch::requires_grad());
    Reducer reducer({weight}, group);
    REQUIRE_THROWS_WITH(
        (weight * weight).sum().backward({}, true, true),
        ContainsSubstring("create_graph"));
    auto table = torch::ones({5, 2}, torch::requires_grad());
    Reducer sparse({table}, group);
    const auto rows = torch::embedding(
        table, torch::tensor({1, 3}), -1, false, /*sparse=*/true);
    REQUIRE_THROWS_WITH(rows.sum().backward(), ContainsSubstring("sparse"));
  });
}
