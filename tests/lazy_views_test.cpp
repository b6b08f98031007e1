#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/ddp.h>

namespace ddp::test::lazy_views_test {

// Gradients and arguments whose memory differs from their values: LibTorch
// negates and conjugates lazily, by a flag on a view.

using Tensors = std::vector<at::Tensor>;

/// Has the values `values`, but stores their negatives.
at::Tensor lazily_negated(const at::Tensor& values) {
  const auto real = at::zeros_like(values);
  const auto result = at::imag(at::conj(at::complex(real, -values)));
  REQUIRE(result.is_neg());
  return result;
}

/// Has the values `values`, but stores their conjugates.
at::Tensor lazily_conjugated(const at::Tensor& values) {
  const auto result = at::conj(at::conj_physical(values));
  REQUIRE(result.is_conj());
  return result;
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

/// Parameters of all shapes and layouts that a reduction may treat differently.
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

/// The same gradient, stored in one of three ways: as dense negatives, as
/// negatives in another order, or with gaps (as conjugates if it is complex).
at::Tensor held_as(const at::Tensor& gradient, int way) {
  if (way == 2) {
    return gradient.is_complex() ? lazily_conjugated(gradient)
                                 : lazily_negated(gradient);
  }
  const auto negatives = gradient.neg();
  return at::_neg_view(
      way == 0 ? negatives
               : negatives.transpose(0, -1).contiguous().transpose(0, -1));
}

void check_held_as(int way, at::ScalarType dtype, const ProcessGroup& group) {
  for (const bool view : {false, true}) {
    for (const bool accumulates : {false, true}) {
      CAPTURE(way, dtype, view, accumulates);
      const auto parameters = make_parameters(dtype);
      for (const auto& parameter : parameters) {
        parameter.register_hook([way](const at::Tensor& gradient) {
          return held_as(gradient, way);
        });
      }
      const auto options =
          ReducerOptions().share_communicator(true).gradient_as_bucket_view(
              view);
      Reducer reducer(parameters, group, options);
      for (int step = 1; step <= 3; ++step) {
        auto loss = at::zeros({}, dtype);
        for (const auto& parameter : parameters) {
          if (!accumulates) {
            parameter.mutable_grad().reset();
          }
          const auto square = at::real(parameter * parameter.detach().conj());
          loss = loss + square.sum() * (group.rank() + 1.0);
        }
        loss.backward();
        for (size_t i = 0; i < parameters.size(); ++i) {
          INFO("step " << step << ", parameter " << i);
          const auto times = accumulates ? 2.0 * step : 2.0;
          REQUIRE(nearly_equal(
              parameters[i].grad(), parameters[i].detach() * times));
        }
      }
    }
  }
}

RANKS_TEST("gradients that are negated or conjugated lazily are averaged") {
  for (const int way : {0, 1, 2}) {
    check_held_as(way, at::kFloat, group);
    check_held_as(way, at::kDouble, group);
  }
}

RANKS_TEST("a negated view of a gradient's slice is no gradient in its place") {
  auto parameter = leaf(at::ones({4}));
  Reducer reducer({parameter}, group);
  for (int step = 0; step < 2; ++step) {
    parameter.mutable_grad().reset();
    parameter.sum().backward();
  }
  const auto grad = parameter.grad();
  // On one rank only: if all negate, a mean is right by chance.
  parameter.mutable_grad() =
      group.rank() == 1 ? at::_neg_view(grad) : grad.neg_();
  (parameter * 3).sum().backward();
  REQUIRE(nearly_equal(parameter.grad(), at::full_like(grad, 2)));
}

RANKS_TEST("collectives take tensors that are negated or conjugated lazily") {
  const auto numbers = at::arange(1, 5, at::kDouble);
  const auto complex = at::complex(numbers, -numbers);
  // On one rank only: if all store the opposite, a sum is right by chance.
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
  const auto chain = chain_of({negates, std::make_shared<AllReduceHook>()});
  Reducer reducer({parameter}, group, with_hook(chain));
  (parameter * 3).sum().backward();
  REQUIRE(nearly_equal(parameter.grad(), at::full({4}, 3.0)));
}

} // namespace ddp::test::lazy_views_test
