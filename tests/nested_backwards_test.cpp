#include <tests/support/catch.h>

#include <ATen/ATen.h>
#include <ddp/reducer/core/end_of_backward.h>
#include <ddp/reducer/core/nested_backwards.h>

namespace ddp::test::nested_backwards_test {

using detail::NestedBackwards;
using detail::ParameterState;

ParameterState parameter(const char* name) {
  ParameterState result(at::zeros({1}), name, false);
  result.expected_arrivals = 1;
  return result;
}

TEST_CASE("a gradient that came in a backward inside another may come again") {
  const bool static_graph = GENERATE(false, true);
  NestedBackwards nested(static_graph);
  std::vector<ParameterState> parameters{
      parameter("outer"), parameter("inner")};
  nested.begin(7);
  nested.arrive(parameters[0], 7);
  nested.arrive(parameters[1], 8);
  nested.record(parameters, 7);
  REQUIRE(!nested.may_come_again(parameters[0]));
  REQUIRE(nested.may_come_again(parameters[1]) == !static_graph);
}

TEST_CASE("a gradient that came inside, then around it, may come again") {
  NestedBackwards nested(false);
  std::vector<ParameterState> parameters{parameter("tied")};
  nested.begin(8);
  nested.arrive(parameters[0], 8);
  nested.arrive(parameters[0], 7);
  nested.record(parameters, 7);
  REQUIRE(nested.may_come_again(parameters[0]));
}

TEST_CASE("what has never come may come more than once") {
  const NestedBackwards nested(false);
  auto one = parameter("one");
  one.expected_arrivals = 0;
  REQUIRE(nested.may_come_again(one));
}

TEST_CASE("a reduction in a backward older than one before nests deeply") {
  NestedBackwards nested(false);
  auto one = parameter("one");
  nested.begin(8);
  nested.arrive(one, 8);
  nested.begin(-1); // outside of any backward
  REQUIRE(!nested.may_come_again(one));
  nested.begin(7);
  REQUIRE(nested.may_come_again(one));
}

TEST_CASE("a backward inside another that ends on another device is rejected") {
  NestedBackwards nested(false);
  auto inner = parameter("inner");
  auto outer = parameter("outer");
  inner.device = at::Device("meta");
  nested.begin(8);
  nested.arrive(inner, 8); // reduced: the thread of the device ran it
  nested.begin(7);
  CHECK_THROWS_WITH(
      nested.arrive(outer, 7),
      Has("ended on meta, but the pass around it reached outer on cpu"));
}

TEST_CASE("the end of a backward is told to nobody whose owner is gone") {
  const bool ends_owner = GENERATE(false, true);
  const bool throws = GENERATE(false, true);
  CAPTURE(ends_owner, throws);
  auto owner = std::make_shared<int>();
  int reached = 0;
  int abandoned = 0;
  const auto x = at::ones({2}).set_requires_grad(true);
  x.register_hook([&](const at::Tensor& /*gradient*/) {
    detail::EndOfBackward::call(
        "waiting", owner, [&] { ++reached; }, [&] { ++abandoned; });
    if (ends_owner) {
      owner.reset();
    }
    TORCH_CHECK(!throws, "thrown");
  });
  const auto backward = [&] { x.sum().backward(); };
  if (throws) {
    REQUIRE_THROWS_WITH(backward(), Has("thrown"));
  } else {
    backward();
  }
  REQUIRE(reached == (!ends_owner && !throws));
  REQUIRE(abandoned == (!ends_owner && throws));
}

} // namespace ddp::test::nested_backwards_test
