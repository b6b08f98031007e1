#include <tests/support/catch.h>

#include <ddp/tensor_traversal.h>

namespace ddp::test::tensor_traversal_test {

using torch::Tensor;

// Types of a program, in its own namespace.
namespace program {

struct Sample {
  Tensor image;
  std::vector<Tensor> boxes;
  std::string path;
};
template <typename Visitor>
void visit_tensors(Sample& sample, Visitor&& visitor) {
  visitor(sample.image);
  visitor(sample.boxes);
}

/// Holds structs, private members and itself.
class Tree {
 public:
  Tree(Tensor tensor, std::vector<Tree> children)
      : sample_{std::move(tensor), {}, ""}, children_(std::move(children)) {}

 private:
  template <typename Visitor>
  friend void visit_tensors(Tree& tree, Visitor&& visitor) {
    visitor(tree.sample_);
    visitor(tree.children_);
  }
  Sample sample_;
  std::vector<Tree> children_;
};

/// Has a function for each kind, and counts the calls.
struct Counted {
  Tensor tensor;
};
template <typename Visitor>
void visit_tensors(Counted& value, Visitor&& visitor) {
  visitor(value.tensor);
}
int const_calls = 0;
template <typename Visitor>
void visit_tensors(const Counted& value, Visitor&& visitor) {
  ++const_calls;
  visitor(value.tensor);
}

/// Forwards with the library's function instead of the visitor itself.
struct Pair {
  Sample first, second;
};
template <typename Visitor>
void visit_tensors(Pair& pair, Visitor&& visitor) {
  visit_tensors(pair.first, visitor);
  visit_tensors(pair.second, visitor);
}

struct Plain {
  Tensor tensor; // not declared
};

} // namespace program

Tensor number(int64_t value) {
  return torch::tensor(value);
}

/// The values of the tensors in the order of the visit; -1 if undefined.
template <typename T>
std::vector<int64_t> values(T&& value) {
  std::vector<int64_t> result;
  visit_tensors(value, [&](const Tensor& tensor) {
    result.push_back(tensor.defined() ? tensor.item<int64_t>() : -1);
  });
  return result;
}

/// Adds 10 to each tensor, out of place.
template <typename T>
void raise(T& value) {
  visit_tensors(value, [](Tensor& tensor) { tensor = tensor + 10; });
}

/// Checks that the tensors of a value, also a const one, are visited, and that
/// those of a copy can be replaced.
template <typename T>
void check(const T& value, const std::vector<int64_t>& expected) {
  static_assert(has_tensors_v<T> && has_tensors_v<const T&>);
  REQUIRE(values(value) == expected);
  T copy = value;
  REQUIRE(values(copy) == expected);
  raise(copy);
  auto raised = expected;
  for (auto& each : raised) {
    each += 10;
  }
  REQUIRE(values(copy) == raised);
  REQUIRE(values(value) == expected);
}

TEST_CASE("a tensor itself is visited, where it is") {
  auto tensor = number(1);
  const Tensor* seen = nullptr;
  visit_tensors(tensor, [&](Tensor& each) { seen = &each; });
  REQUIRE(seen == &tensor);
  check(tensor, {1});
  REQUIRE(values(Tensor()) == std::vector<int64_t>{-1});
}

TEST_CASE("containers are visited in order") {
  check(std::vector<Tensor>{number(1), number(2)}, {1, 2});
  check(std::array<Tensor, 2>{number(1), number(2)}, {1, 2});
  check(std::list<Tensor>{number(1), number(2)}, {1, 2});
  check(std::deque<Tensor>{number(1), number(2)}, {1, 2});
  check(std::make_optional(number(1)), {1});
  check(std::optional<Tensor>(), {});
  check(std::make_pair(number(1), std::string("a")), {1});
  check(std::make_tuple(5, number(1), 2.0, number(3)), {1, 3});
  check(std::map<int, Tensor>{{2, number(1)}, {4, number(3)}}, {1, 3});
  check(std::unordered_map<std::string, Tensor>{{"a", number(1)}}, {1});
}

TEST_CASE("LibTorch's own containers are visited") {
  check(
      torch::OrderedDict<std::string, Tensor>(
          {{"b", number(1)}, {"a", number(2)}}),
      {1, 2});
  check(torch::data::Example<>(number(1), number(2)), {1, 2});
  check(torch::data::Example<Tensor, int>(number(1), 2), {1});
  check(torch::data::TensorExample(number(1)), {1});
}

TEST_CASE("a packed sequence is visited but for its batch sizes") {
  using torch::nn::utils::rnn::PackedSequence;
  const PackedSequence sequence(
      number(1), torch::tensor({1}), number(3), number(4));
  check(sequence, {1, 3, 4});
  auto copy = sequence;
  raise(copy);
  REQUIRE(copy.batch_sizes().is_same(sequence.batch_sizes()));
}

TEST_CASE("containers nest") {
  using Row = std::vector<std::pair<std::string, std::optional<Tensor>>>;
  check(
      std::make_tuple(
          Row{{"a", number(1)}, {"b", std::nullopt}, {"c", number(2)}},
          std::map<int, std::array<Tensor, 1>>{{1, {number(3)}}}),
      {1, 2, 3});
}

TEST_CASE("structs are visited by a function beside them") {
  const program::Sample sample{number(1), {number(2), number(3)}, "path"};
  check(sample, {1, 2, 3});
  check(std::make_pair(1, std::vector{sample, sample}), {1, 2, 3, 1, 2, 3});
  check(
      program::Tree(
          number(1), {{number(2), {{number(3), {}}}}, {number(4), {}}}),
      {1, 2, 3, 4});
  check(program::Pair{sample, sample}, {1, 2, 3, 1, 2, 3});
}

TEST_CASE("a struct's function for const values is preferred for those") {
  program::Counted value{number(1)};
  program::const_calls = 0;
  raise(value);
  REQUIRE(program::const_calls == 0);
  REQUIRE(values(std::as_const(value)) == std::vector<int64_t>{11});
  REQUIRE(program::const_calls == 1);
}

TEST_CASE("const structs show const tensors") {
  const program::Sample sample{number(1), {number(2)}, ""};
  visit_tensors(sample, [](auto& tensor) {
    static_assert(std::is_same_v<decltype(tensor), const Tensor&>);
  });
}

TEST_CASE("what holds no tensors is told apart when compiling") {
  static_assert(!has_tensors_v<int> && !has_tensors_v<void>);
  static_assert(!has_tensors_v<std::string>);
  static_assert(!has_tensors_v<std::vector<double>>);
  static_assert(!has_tensors_v<std::tuple<>>);
  static_assert(!has_tensors_v<std::pair<int, std::vector<std::string>>>);
  static_assert(!has_tensors_v<program::Plain>);
  static_assert(!has_tensors_v<std::vector<program::Plain>>);
  static_assert(!has_tensors_v<std::shared_ptr<Tensor>>);
  static_assert(!has_tensors_v<Tensor*> && !has_tensors_v<Tensor[2]>);
  // Tensors outside the object itself, or that cannot be replaced.
  static_assert(!has_tensors_v<std::tuple<Tensor&, const Tensor&>>);
  static_assert(!has_tensors_v<std::tuple<program::Sample&>>);
  static_assert(!has_tensors_v<std::pair<const Tensor, int>>);
  static_assert(has_tensors_v<std::tuple<Tensor&, Tensor>>);
  static_assert(has_tensors_v<Tensor&&> && has_tensors_v<const Tensor>);
  auto outside = number(1);
  REQUIRE(
      values(std::tuple<Tensor&, Tensor>(outside, number(2))) ==
      std::vector<int64_t>{2});
  REQUIRE(values(program::Plain{number(1)}).empty());
  REQUIRE(values(7).empty());
}

TEST_CASE("the visitor keeps its state") {
  struct Count {
    int tensors = 0;
    void operator()(const Tensor& /*tensor*/) {
      ++tensors;
    }
  };
  Count count;
  visit_tensors(program::Sample{number(1), {number(2)}, ""}, count);
  visit_tensors(number(3), count);
  REQUIRE(count.tensors == 3);
}

} // namespace ddp::test::tensor_traversal_test
