#include <checkpoint/module_copies.h>
#include <checkpoint/state_dict.h>
#include <ddp/module_state.h>
#include <tests/support/catch.h>
#include <tests/support/nets.h>

namespace ddp::test::state_dict_test {

using detail::match_names;
using Names = std::vector<std::string>;

/// Contains another module, like DistributedDataParallel.
struct Wrapper : torch::nn::Module, WrappedModule {
  explicit Wrapper(std::shared_ptr<torch::nn::Module> inner)
      : inner_(register_module("module", std::move(inner))) {}
  torch::nn::Module& wrapped() override {
    return *inner_;
  }
  const torch::nn::Module& wrapped() const override {
    return *inner_;
  }
  std::shared_ptr<torch::nn::Module> inner_;
};

const Names kNone;

// Whether each name of the module is matched with the file's at its position.
bool matches(const Names& module, const Names& file) {
  const auto match = match_names(module, file);
  if (!match.missing.empty() || !match.unexpected.empty() ||
      match.pairs.size() != module.size()) {
    return false;
  }
  return std::all_of(
      match.pairs.begin(), match.pairs.end(), [&](const auto& pair) {
        const auto at = std::find(module.begin(), module.end(), pair.first);
        return at != module.end() && file[at - module.begin()] == pair.second;
      });
}

Names prefixed(const std::string& prefix, Names names) {
  for (auto& name : names) {
    name = prefix + name;
  }
  return names;
}

// Unique names of a random tree; children are often called `module`.
Names random_tree(std::mt19937& random, int depth, bool may_be_leaf) {
  static const Names kChildren{"module", "conv", "a", "head"};
  static const Names kTensors{"weight", "bias", "module"};
  Names names;
  for (const auto& tensor : kTensors) {
    if (random() % 3 == 0) {
      names.push_back(tensor);
    }
  }
  for (const auto& child : kChildren) {
    if (depth > 0 && random() % 3 == 0) {
      const auto inner = random_tree(random, depth - 1, false);
      const auto whole = prefixed(child + ".", inner);
      names.insert(names.end(), whole.begin(), whole.end());
    }
  }
  if (names.empty() && !may_be_leaf) {
    names.push_back("weight");
  }
  return names;
}

std::string wrappers(unsigned count) {
  std::string prefix;
  for (unsigned i = 0; i < count; ++i) {
    prefix += "module.";
  }
  return prefix;
}

struct Inner : LayeredNet {
  torch::nn::Linear late = linear("late", 2, 1);
  torch::Tensor scale = register_parameter("scale", torch::ones(2));
  torch::Tensor steps =
      register_buffer("steps", torch::zeros({}, torch::kLong));
  torch::Tensor none = register_buffer("none", torch::Tensor());
  torch::nn::BatchNorm1d norm = add("norm", torch::nn::BatchNorm1d(2));
};

struct Pair : torch::nn::Module {
  Pair(
      const std::shared_ptr<torch::nn::Module>& a,
      const std::shared_ptr<torch::nn::Module>& b) {
    register_module("a", a);
    register_module("b", b);
  }
};

TEST_CASE("named_state has Python's names and order") {
  const Names expected{
      "scale",
      "steps",
      "late.weight",
      "late.bias",
      "norm.weight",
      "norm.bias",
      "norm.running_mean",
      "norm.running_var",
      "norm.num_batches_tracked"};
  const auto inner = std::make_shared<Inner>();
  CHECK(detail::named_state(*inner).keys() == expected);
  CHECK(detail::named_state(*inner)["scale"].is_same(inner->scale));
}

TEST_CASE("named_state looks through wrappers") {
  const auto inner = std::make_shared<Inner>();
  const auto names = detail::named_state(*inner).keys();
  auto wrapper = std::make_shared<Wrapper>(std::make_shared<Wrapper>(inner));
  CHECK(detail::named_state(*wrapper).keys() == names);
  CHECK(&detail::unwrapped(*wrapper) == inner.get());
  const Pair wrapped(wrapper, std::make_shared<Inner>());
  const Pair plain(inner, std::make_shared<Inner>());
  CHECK(
      detail::named_state(wrapped).keys() == detail::named_state(plain).keys());
}

TEST_CASE("match_names lists what has no partner") {
  auto match = match_names({"a.x", "b", "c"}, {"a.x", "a.y", "c.z"});
  CHECK(match.pairs.size() == 1);
  CHECK(match.missing == Names{"b", "c"});
  CHECK(match.unexpected == Names{"a.y", "c.z"});
  match = match_names({"a", "b"}, {"module.a", "module.d"});
  CHECK(match.missing == Names{"b"});
  CHECK(match.unexpected == Names{"module.d"});
  CHECK(match_names({"a"}, kNone).missing == Names{"a"});
  CHECK(match_names(kNone, {"module.a"}).unexpected == Names{"module.a"});
}

TEST_CASE("match_names stands any name of a file") {
  const Names strange{
      "", ".", "..", "a", "a.", "a..", ".a", "module.", "module"};
  CHECK(matches(strange, strange));
  CHECK(matches(strange, prefixed("module.", strange)));
  std::string deep;
  for (int i = 0; i < 1000000; ++i) {
    deep += "module.";
  }
  CHECK(matches({"w"}, {deep + "w"}));
}

TEST_CASE("match_names finds the tree under any wrappers") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto module = random_tree(random, 3, false);
    std::shuffle(module.begin(), module.end(), random);
    const auto outer = wrappers(random() % 4);
    const auto file = prefixed(outer, module);
    INFO("first of " << module.size() << ": " << module[0] << ", " << outer);
    REQUIRE(matches(module, file));
    REQUIRE(matches(file, module));
  }
}

TEST_CASE("match_names finds wrappers within a dictionary") {
  std::mt19937 random(8);
  for (int i = 0; i < 5000; ++i) {
    Names module, file;
    const auto outer = wrappers(random() % 3);
    for (const std::string child : {"generator", "critic", "encoder"}) {
      const auto names = random_tree(random, 2, false);
      const auto inner = wrappers(random() % 3);
      for (const auto& name : names) {
        module.push_back(child + "." + name);
        file.push_back(outer + child + "." + inner + name);
      }
    }
    REQUIRE(matches(module, file));
  }
}

} // namespace ddp::test::state_dict_test
