#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

#include <ddp/reducer.h>

namespace ddp::test::python_construction_test {

// The tests of Python's DistributedDataParallel for its construction:
// comparisons over ranks.

using Net = std::shared_ptr<torch::nn::Module>;
using Linear = torch::nn::LinearImpl;

/// A net that one rank makes differently, and the error on all ranks.
struct Case {
  int64_t odd_rank;
  std::function<Net(bool odd)> make;
  std::vector<std::string> texts;
};

/// A BranchNet after a change on the odd rank.
std::function<Net(bool odd)> with_change(void (*change)(BranchNet&)) {
  return [change](bool odd) {
    auto net = std::make_shared<BranchNet>();
    if (odd) {
      change(*net);
    }
    return net;
  };
}

/// A net of parameters of these names, a letter each.
std::function<Net(bool odd)> with_names(const char* most, const char* odd_one) {
  return [most, odd_one](bool odd) {
    auto net = std::make_shared<torch::nn::Module>();
    for (const char name : std::string(odd ? odd_one : most)) {
      net->register_parameter(std::string(1, name), torch::ones({2}));
    }
    return net;
  };
}

Net convolution(bool channels_last) {
  torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 3, 2));
  if (channels_last) {
    net->weight.set_data(
        net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  return net.ptr();
}

Net with_buffer(bool odd) {
  auto net = std::make_shared<BranchNet>();
  net->register_buffer("seen", torch::zeros({odd ? 3 : 2}));
  return net;
}

std::vector<Case> cases() {
  return {
      {1,
       with_change([](auto& net) { net.right->to(torch::kDouble); }),
       {"on rank 1, parameter 4 is right.weight Double",
        "on rank 0, it is right.weight Float"}},
      {2,
       with_change([](auto& net) {
         net.left->register_parameter("extra", torch::zeros({3, 2}));
       }),
       {"on rank 2, parameter 4 is left.extra",
        "on rank 0, it is right.weight"}},
      {2,
       with_change([](auto& net) { net.right->weight.set_requires_grad(0); }),
       {"on rank 2, parameter 4 is right.weight", ", trainable"}},
      {1,
       [](bool odd) { return std::make_shared<Linear>(2, odd ? 4 : 3); },
       {"on rank 1, parameter 0 is weight Float [4, 2]",
        "on rank 0, it is weight Float [3, 2]"}},
      {1,
       with_names("ab", "ba"), // of equal shapes
       {"on rank 1, parameter 0 is b Float [2]",
        "on rank 0, it is a Float [2]",
        "parameter 1 is a"}},
      {0, // rank 0 may be the odd one
       with_names("ab", "a"),
       {"parameter 1", "b Float [2]", "none", "on rank 1, "}},
      {2,
       with_names("ab", "a"),
       {"parameter 1", "b Float [2]", "none", "on rank 2, "}},
      {2,
       convolution,
       {"on rank 2, parameter 0 is weight Float [3, 2, 2, 2] with strides "
        "[8, 1, 4, 2]",
        "on rank 0, it is weight Float [3, 2, 2, 2] with strides [8, 4, 2, "
        "1]"}},
      {1, with_buffer, {"seen Float [3]", "seen Float [2]"}},
  };
}

RANKS_TEST("what differs in a rank's model is refused on all by name") {
  for (const auto& [odd_rank, make, texts] : cases()) {
    const auto net = make(group.rank() == odd_rank);
    const auto text = error_on_all(group, [&] { (void)Reducer(net, group); });
    for (const auto& expected : texts) {
      REQUIRE_THAT(text, Has(expected));
    }
  }
  // Ignored buffers are not compared.
  const auto own = ReducerOptions().parameters_to_ignore({"seen"});
  Reducer ignoring(with_buffer(group.rank() == 1), group, own);
}

RANKS_TEST("an option that differs is refused on all by name") {
  const bool odd = group.rank() == 2;
  struct Hook : CommHook {
    c10::intrusive_ptr<c10::ivalue::Future> run(
        const GradBucket& /*bucket*/,
        const ProcessGroup& /*group*/) override {
      return nullptr;
    }
  };
  const auto names = [&](const char* name) {
    return std::set<std::string>{odd ? "left.bias" : name};
  };
  const std::vector<std::pair<std::string, ReducerOptions>> cases{
      {"bucket_cap_mb 2", ReducerOptions().bucket_cap_mb(odd ? 2 : 1)},
      {"bucket_cap_mb_list 2 3",
       ReducerOptions().bucket_cap_mb_list(
           odd ? std::vector<double>{2, 3} : std::vector<double>{2})},
      {"first_bucket_cap_mb 2",
       ReducerOptions().first_bucket_cap_mb(odd ? 2 : 1)},
      {"find_unused_parameters 1",
       ReducerOptions().find_unused_parameters(odd)},
      {"gradient_as_bucket_view 1",
       ReducerOptions().gradient_as_bucket_view(odd)},
      {"static_graph 1", ReducerOptions().static_graph(odd)},
      {"broadcast_buffers 1", ReducerOptions().broadcast_buffers(odd)},
      {"skip_all_reduce_unused_params 1",
       ReducerOptions().skip_all_reduce_unused_params(odd)},
      {"check_finite 1", ReducerOptions().check_finite(odd)},
      {"::Hook), rank 0 has (comm_hook ddp::AllReduceHook)",
       ReducerOptions().comm_hook(odd ? std::make_shared<Hook>() : nullptr)},
      {"parameters_to_ignore left.bias",
       ReducerOptions().parameters_to_ignore(names("left.weight"))},
      {"sparse_parameters left.bias",
       ReducerOptions().sparse_parameters(names("left.weight"))},
  };
  for (const auto& [text, options] : cases) {
    INFO(text);
    const auto thrown = error_on_all(group, [&, &chosen = options] {
      (void)Reducer(std::make_shared<BranchNet>(), group, chosen);
    });
    REQUIRE_THAT(
        thrown, Has("rank 2 has options (", text) && !Has("timeline_steps"));
    if (text.find("parameters") == std::string::npos) { // which leave some out
      REQUIRE_THAT(thrown, Has("the options are not the same on all"));
    }
  }
}

RANKS_TEST("without init_sync nothing is compared and nothing is sent") {
  auto net = std::make_shared<torch::nn::Module>();
  auto weight =
      net->register_parameter("w", torch::full({2}, 1.0 * group.rank()));
  auto buffer = net->register_buffer(
      "b" + std::to_string(group.rank()), torch::full({2}, group.rank()));
  Reducer reducer(
      net, group, ReducerOptions().init_sync(false).broadcast_buffers(false));
  REQUIRE(weight.eq(group.rank()).all().item<bool>());
  REQUIRE(buffer.eq(group.rank()).all().item<bool>());
  (weight * weight).sum().backward();
  REQUIRE(weight.grad().eq(2).all().item<bool>());
}

RANKS_TEST("without broadcast_buffers construction leaves buffers alone") {
  auto net = std::make_shared<torch::nn::Module>();
  const auto mine = torch::full({2}, 1.0 * group.rank());
  const auto weight = net->register_parameter("w", mine.clone());
  const auto buffer = net->register_buffer("b", mine.clone());
  Reducer reducer(net, group, ReducerOptions().broadcast_buffers(false));
  REQUIRE(weight.eq(0).all().item<bool>());
  REQUIRE(buffer.equal(mine));
}

RANKS_TEST("a mistake on one rank is told to the others") {
  auto net = std::make_shared<BranchNet>();
  ReducerOptions options;
  if (group.rank() == 1) {
    options.parameters_to_ignore({"lefd.bias"});
  }
  REQUIRE_THROWS_WITH(
      Reducer(net, group, options), Has("is named 'lefd.bias'"));
}

} // namespace ddp::test::python_construction_test
