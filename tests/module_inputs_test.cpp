#include <tests/support/catch.h>

#include <ddp/internal/module_inputs.h>

namespace ddp::test::module_inputs_test {

using detail::check_devices;
using detail::ModuleInput;
using detail::StrayTensors;
using torch::Tensor;

const torch::Device kHere = torch::kCPU;
const torch::Device kThere = torch::kMeta; // has no data, but is a device

/// Cannot be copied, and holds tensors.
struct Unique {
  Tensor tensor;
  std::unique_ptr<int> pointer;
};
template <typename Visitor>
void visit_tensors(Unique& value, Visitor&& visitor) {
  visitor(value.tensor);
}

/// The input of a forward for `argument`.
template <typename Argument>
ModuleInput<Argument&&> input(
    Argument&& argument,
    std::optional<torch::Device> device) {
  return {std::forward<Argument>(argument), device};
}

/// Checks that `get` returns `argument` itself, as `Argument`.
template <typename Argument>
void check_same(Argument&& argument, std::optional<torch::Device> device) {
  auto passed = input(std::forward<Argument>(argument), device);
  static_assert(std::is_same_v<decltype(passed.get()), Argument&&>);
  auto&& got = passed.get();
  REQUIRE(std::addressof(got) == std::addressof(argument));
  REQUIRE(std::addressof(passed.value()) == std::addressof(argument));
}

/// A module with a parameter and a buffer there, and one buffer here.
struct Net : torch::nn::Module {
  Tensor weight, steps, table;

  explicit Net(torch::Device buffers = kThere) {
    const auto there = torch::TensorOptions().device(kThere);
    weight = register_parameter("weight", torch::empty({2, 3}, there));
    steps = register_buffer("steps", torch::empty({2}, there));
    table = register_buffer("table", torch::empty({2}, buffers));
  }
};

template <typename... Arguments>
void check_on(const torch::nn::Module& net, const Arguments&... arguments) {
  StrayTensors strays(kThere);
  (strays.add(arguments), ...);
  check_devices(net, strays.found(), 5);
}

TEST_CASE("an argument that is where it should be is passed itself") {
  auto tensor = torch::ones({2});
  const auto constant = torch::ones({2});
  for (const auto device :
       {std::optional(kHere), std::optional<torch::Device>()}) {
    check_same(tensor, device);
    check_same(constant, device);
    check_same(std::move(tensor), device);
    check_same(std::move(constant), device);
    std::vector<Tensor> list{tensor, Tensor()};
    check_same(list, device);
    check_same(std::move(list), device);
    Unique unique{tensor, nullptr};
    check_same(unique, device);
    check_same(std::move(unique), device);
  }
}

TEST_CASE("an argument without tensors is passed itself, wherever it goes") {
  auto pointer = std::make_unique<int>(1);
  check_same(pointer, kThere);
  check_same(std::move(pointer), kThere);
  check_same("text", kThere);
  int number = 1;
  check_same(number, kThere);
  check_same(std::vector<std::string>{"a"}, kThere);
  check_same(Tensor(), kThere); // undefined: it has no device
  check_same(std::optional<Tensor>(), kThere);
}

TEST_CASE("a copy with its tensors moved is passed otherwise") {
  std::pair<std::vector<Tensor>, int> batch{
      {torch::ones({2}), Tensor(), torch::ones({3}, kThere)}, 7};
  const auto before = batch;
  auto passed = input(batch, kThere);
  static_assert(std::is_same_v<
                decltype(passed.get()),
                std::pair<std::vector<Tensor>, int>&>);
  auto& moved = passed.get();
  REQUIRE(&moved != &batch);
  REQUIRE(&passed.value() == &moved);
  REQUIRE(moved.second == 7);
  REQUIRE(moved.first[0].device() == kThere);
  REQUIRE(moved.first[0].sizes() == torch::IntArrayRef({2}));
  REQUIRE(!moved.first[1].defined());
  REQUIRE(moved.first[2].is_same(batch.first[2])); // was there already
  for (size_t i = 0; i < 3; ++i) { // the caller's are unchanged
    REQUIRE(batch.first[i].is_same(before.first[i]));
  }
}

TEST_CASE("a copy comes with the argument's constness and value category") {
  const auto constant = torch::ones({2});
  auto as_const = input(constant, kThere);
  static_assert(std::is_same_v<decltype(as_const.get()), const Tensor&>);
  REQUIRE(as_const.get().device() == kThere);
  REQUIRE(constant.device() == kHere);
  auto as_rvalue = input(torch::ones({2}), kThere);
  static_assert(std::is_same_v<decltype(as_rvalue.get()), Tensor&&>);
  REQUIRE(as_rvalue.get().device() == kThere);
}

TEST_CASE("gradients flow back through a move") {
  auto leaf = torch::ones({2}, torch::requires_grad());
  auto passed = input(leaf, kThere);
  REQUIRE(passed.get().requires_grad());
  REQUIRE(passed.get().grad_fn());
}

TEST_CASE("what cannot be copied is moved from, or refused") {
  Unique unique{torch::ones({2}), std::make_unique<int>(4)};
  REQUIRE_THROWS_WITH(
      input(unique, kThere),
      Has("Unique", "not on the module's device meta", "cannot be copied"));
  REQUIRE_THROWS_AS(input(unique, kThere), c10::ValueError);
  std::vector<Unique> list; // its type claims to be copyable
  list.push_back({torch::ones({2}), nullptr});
  REQUIRE_THROWS_AS(input(list, kThere), c10::ValueError);
  REQUIRE(*unique.pointer == 4);
  auto passed = input(std::move(unique), kThere);
  Unique taken = passed.get();
  REQUIRE(taken.tensor.device() == kThere);
  REQUIRE(*taken.pointer == 4);
}

TEST_CASE("arguments on another device than the module are named") {
  const Net net;
  const auto there = torch::ones({2}, kThere);
  const std::vector<Tensor> mixed{there, there, torch::ones({2})};
  REQUIRE_THROWS_AS(check_on(net, there, 4, mixed), c10::ValueError);
  REQUIRE_THROWS_WITH(
      check_on(net, there, 4, mixed),
      Has("rank 5",
          "argument 2 of forward (its tensor 2) is on cpu",
          "parameter weight",
          "are on meta"));
  REQUIRE_THROWS_WITH(
      check_on(net, torch::ones({2}), mixed),
      Has("argument 0 of forward (its tensor 0)"));
}

TEST_CASE("arguments that kernels take are let through") {
  const Net net;
  const auto there = torch::ones({2}, kThere);
  check_on(net);
  check_on(net, there, Tensor(), std::optional<Tensor>(), std::string("x"));
  check_on(net, torch::tensor(0.5)); // CPU scalars go with all devices
  REQUIRE_THROWS(check_on(net, torch::tensor({0.5})));
  check_on(Net(kHere), torch::ones({2})); // a buffer is there
}

TEST_CASE("a module on several devices takes arguments from all") {
  Net net;
  net.register_parameter("bias", torch::ones({2}));
  check_on(net, torch::ones({2}), torch::ones({2}, kThere));
}

} // namespace ddp::test::module_inputs_test
