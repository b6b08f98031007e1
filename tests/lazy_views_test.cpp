#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::lazy_views_test {

// Gradients and arguments whose memory is not what they read as: LibTorch
// negates and conjugates lazily, by a flag on a view.

using Tensors = std::vector<at::Tensor>;

/// Reads as `values`, but holds their negatives.
at::Tensor lazily_negated(const at::Tensor& values) {
  const auto real = at::zeros_like(values);
  const auto result = at::imag(at::conj(at::complex(real, -values)));
  REQUIRE(result.is_neg());
  return result;
}

/// Reads as `values`, but holds their conjugates.
at::Tensor lazily_conjugated(const at::Tensor& values) {
  const auto result = at::conj(at::conj_physical(values));
  REQUIRE(result.is_conj());
  return result;
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

/// Parameters of all the shapes and layouts that a gradient's way may treat
/// differently.
Tensors make_parameters(at::ScalarType dtype) {
  const auto complex = at::toComplexType(dtype);
  const auto make = [](at::IntArrayRef sizes, at::ScalarType type) {
    auto values = at::randn(sizes, type);
    return leaf(
        values.dim() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast)
                          : values);
  };
  return {
      make({}, dtype),
      make({1}, dtype),
      make({1, 1}, dtype),
      make({3}, dtype),
      make({2, 3}, dtype),
      make({2, 3, 2, 2}, dtype),
      make({3, 1, 1, 1}, dtype),
      make({}, complex),
      make({1}, complex),
      make({2, 3}, complex)};
}

/// A graph that `shape` decides, over values that `data` decides.
class RandomLoss {
 public:
  RandomLoss(uint32_t shape, uint64_t data)
      : shape_(shape), generator_(at::detail::createCPUGenerator(data)) {}

  at::Tensor operator()(const Tensors& parameters) {
    at::Tensor loss;
    const auto certain = draw(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i == certain || draw(2) == 0) {
        const auto term = reduce(transform(parameters[i]));
        loss = loss.defined() ? loss + term : term;
      }
    }
    return loss;
  }

 private:
  size_t draw(size_t choices) {
    return shape_() % choices;
  }

  at::Tensor values_like(const at::Tensor& tensor) {
    return at::randn(tensor.sizes(), generator_, tensor.options());
  }

  at::Tensor transform(at::Tensor value) {
    const auto steps = 1 + draw(4);
    for (size_t i = 0; i < steps; ++i) {
      value = value.is_complex() ? of_complex(value) : of_real(value);
    }
    return value;
  }

  at::Tensor of_complex(const at::Tensor& value) {
    switch (draw(5)) {
      case 0:
        return at::conj(value);
      case 1:
        return at::imag(value);
      case 2:
        return at::real(value);
      case 3:
        return at::view_as_real(at::resolve_conj(value));
      default:
        return value * values_like(value);
    }
  }

  at::Tensor of_real(const at::Tensor& value) {
    switch (draw(6)) {
      case 0:
        return at::complex(value, value * values_like(value));
      case 1:
        return at::complex(values_like(value), value);
      case 2: {
        auto sizes = value.sizes().vec();
        sizes.insert(sizes.begin(), 2);
        return value.unsqueeze(0).expand(sizes);
      }
      case 3:
        return value.dim() < 2 ? at::flip(value.reshape({-1}), 0)
                               : value.transpose(0, -1);
      case 4: {
        const auto flat = value.contiguous();
        const auto count = (flat.numel() + 1) / 2;
        return at::as_strided(flat, {count}, {flat.numel() > 1 ? 2 : 1});
      }
      default:
        return -value;
    }
  }

  at::Tensor reduce(const at::Tensor& value) {
    const auto weighted = value * values_like(value);
    if (!weighted.is_complex()) {
      return weighted.sum();
    }
    const bool conjugates = draw(2) == 0;
    const auto sum = (conjugates ? at::conj(weighted) : weighted).sum();
    return draw(2) == 0 ? at::imag(sum) : at::real(sum);
  }

  std::mt19937 shape_;
  at::Generator generator_;
};

uint64_t data_of(int graph, int step, int64_t rank) {
  return 1 + (static_cast<uint64_t>(graph) * 10 + step) * 10 + rank;
}

/// The mean over ranks of what plain autograd adds up; counts the gradients
/// that it negates or conjugates lazily.
Tensors expected_gradients(
    const Tensors& parameters,
    int64_t size,
    int graph,
    int step,
    int* lazy) {
  Tensors sums(parameters.size());
  for (int64_t rank = 0; rank < size; ++rank) {
    Tensors leaves;
    for (const auto& parameter : parameters) {
      leaves.push_back(leaf(parameter));
    }
    RandomLoss(graph, data_of(graph, step, rank))(leaves).backward();
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto grad = leaves[i].grad();
      if (grad.defined()) {
        *lazy += grad.is_neg() || grad.is_conj();
        sums[i] = sums[i].defined() ? sums[i] + grad / size : grad / size;
      }
    }
  }
  return sums;
}

RANKS_TEST("random graphs of views have plain autograd's gradients") {
  int lazy = 0;
  for (int graph = 0; graph < 500; ++graph) {
    at::manual_seed(graph);
    const auto parameters =
        make_parameters(graph % 2 == 0 ? at::kFloat : at::kDouble);
    Reducer reducer(
        parameters,
        group,
        ReducerOptions().share_communicator(true).gradient_as_bucket_view(
            graph % 3 == 0));
    Tensors expected(parameters.size());
    for (int step = 0; step < 3; ++step) {
      const bool accumulates = graph % 5 == 0;
      for (const auto& parameter : parameters) {
        if (!accumulates) {
          parameter.mutable_grad().reset();
        }
      }
      RandomLoss(graph, data_of(graph, step, group.rank()))(parameters)
          .backward();
      const auto means =
          expected_gradients(parameters, group.size(), graph, step, &lazy);
      for (size_t i = 0; i < parameters.size(); ++i) {
        expected[i] = accumulates && expected[i].defined()
            ? expected[i] + means[i]
            : means[i];
        INFO("graph " << graph << ", step " << step << ", parameter " << i);
        const auto& grad = parameters[i].grad();
        REQUIRE(grad.defined() == expected[i].defined());
        REQUIRE((!grad.defined() || nearly_equal(grad, expected[i])));
      }
    }
  }
  REQUIRE(lazy > 100);
}

RANKS_TEST("a negated view of a gradient's slice is no gradient in its place") {
  auto parameter = leaf(at::ones({4}));
  Reducer reducer({parameter}, group);
  for (int step = 0; step < 2; ++step) {
    parameter.mutable_grad().reset();
    parameter.sum().backward();
  }
  const auto grad = parameter.grad();
  // On one rank only: where all negate, a mean is right by chance.
  parameter.mutable_grad() =
      group.rank() == 1 ? at::_neg_view(grad) : grad.neg_();
  (parameter * 3).sum().backward();
  REQUIRE(nearly_equal(parameter.grad(), at::full_like(grad, 2)));
}

RANKS_TEST("collectives take tensors that are negated or conjugated lazily") {
  const auto numbers = at::arange(1, 5, at::kDouble);
  const auto complex = at::complex(numbers, -numbers);
  // On one rank only: where all hold the opposite, a sum is right by chance.
  const bool lazy = group.rank() == 1;
  for (const auto& values : {numbers, complex}) {
    const auto make = [&, values = values] {
      return !lazy              ? values.clone()
          : values.is_complex() ? lazily_conjugated(values)
                                : lazily_negated(values);
    };
    auto sum = make();
    group.all_reduce(sum);
    REQUIRE(sum.equal(values * 3));
    auto sent = lazy ? make() : at::zeros_like(values);
    group.broadcast(sent, 1);
    REQUIRE(sent.equal(values));
    for (const auto& of_rank : group.all_gather(make())) {
      REQUIRE(of_rank.equal(values));
    }
    if (!values.is_complex()) {
      auto largest = make();
      group.all_reduce(largest, ReduceOp::kMax);
      REQUIRE(largest.equal(values));
    }
  }
  auto negated = lazily_negated(numbers);
  REQUIRE_THROWS_AS(group.all_reduce_async(negated), c10::ValueError);
  REQUIRE_THROWS_AS(group.broadcast_async(negated), c10::ValueError);
}

RANKS_TEST("zeros without memory are read as zeros") {
  const auto zeros = at::_efficientzerotensor({4}, at::kFloat);
  const auto own = at::full({4}, 2.0F);
  const auto mine = group.rank() == 1 ? zeros : own;
  const auto gathered = group.all_gather(mine);
  REQUIRE(gathered[0].equal(own));
  REQUIRE(gathered[1].equal(at::zeros({4})));
  REQUIRE_THROWS_AS(group.all_reduce_async(zeros), c10::ValueError);
  NamedTensors named;
  named.names = {"zeros"};
  named.tensors = {group.rank() == 1 ? zeros : at::zeros({4})};
  verify_same_values(named, group, "values");
  auto parameter = leaf(own);
  const Reducer reducer({parameter}, group);
  parameter.register_hook([&](const at::Tensor& gradient) {
    return group.rank() == 1 ? zeros : gradient;
  });
  (parameter * 3).sum().backward();
  REQUIRE(nearly_equal(parameter.grad(), at::full({4}, 2.0F)));
  Adam optimizer({parameter}, torch::optim::AdamOptions(0.1));
  parameter.mutable_grad() = zeros;
  optimizer.step();
  REQUIRE(parameter.equal(own));
}

TEST_CASE("an optimizer takes a gradient that is conjugated lazily") {
  const auto numbers = at::arange(1, 5, at::kDouble);
  const auto gradient = at::complex(numbers, -numbers);
  const auto weights = [&](const at::Tensor& grad) {
    auto weight = leaf(at::ones({4}, at::kComplexDouble));
    Adam optimizer({weight}, torch::optim::AdamOptions(0.1));
    weight.mutable_grad() = grad;
    optimizer.step();
    return weight.detach();
  };
  REQUIRE(at::equal(
      weights(gradient.conj()), weights(gradient.conj().resolve_conj())));
}

RANKS_TEST("the next hook of a chain takes what one has negated lazily") {
  auto parameter = leaf(at::ones({4}));
  const auto negates =
      custom([](const GradBucket& bucket, const ProcessGroup&) {
        return completed(lazily_negated(bucket.buffer));
      });
  const auto chain =
      std::make_shared<HookChain>(std::vector<std::shared_ptr<CommHook>>{
          negates, std::make_shared<AllReduceHook>()});
  Reducer reducer({parameter}, group, with_hook(chain));
  (parameter * 3).sum().backward();
  REQUIRE(nearly_equal(parameter.grad(), at::full({4}, 3.0)));
}

} // namespace ddp::test::lazy_views_test
