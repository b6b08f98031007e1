#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

#include <ddp/reducer.h>

#include <functional>

namespace ddp::test::python_construction_test {

// What the tests of Python's DistributedDataParallel ask of its construction:
// comparisons over ranks.

namespace {

/// How ranks refuse a net that `change` made different on rank 1.
std::string refusal_of_net(
    const ProcessGroup& group,
    const std::function<void(BranchNet&)>& change) {
  auto net = std::make_shared<BranchNet>();
  if (group.rank() == 1) {
    change(*net);
  }
  return error_on_all(group, [&] { (void)Reducer(net, group); });
}

} // namespace

RANKS_TEST("a parameter of another dtype on a rank is refused on all by name") {
  REQUIRE_THAT(
      refusal_of_net(
          group, [](BranchNet& net) { net.right->to(torch::kDouble); }),
      ContainsSubstring("rank 1 has as parameter 4 right.weight Double") &&
          ContainsSubstring("rank 0 has right.weight Float"));
}

RANKS_TEST("parameters in another order on a rank are refused on all by name") {
  auto net = std::make_shared<torch::nn::Module>();
  const bool odd = group.rank() == 1; // of equal shapes
  net->register_parameter(odd ? "b" : "a", torch::ones({2}));
  net->register_parameter(odd ? "a" : "b", torch::ones({2}));
  REQUIRE_THAT(
      error_on_all(group, [&] { (void)Reducer(net, group); }),
      ContainsSubstring("rank 1 has as parameter 0 b Float [2]") &&
          ContainsSubstring("rank 0 has a Float [2]") &&
          ContainsSubstring("parameter 1 a"));
}

RANKS_TEST("a parameter that a rank lacks is refused on all by name") {
  for (const int64_t odd : {0, 2}) { // rank 0 too may be the odd one
    auto net = std::make_shared<torch::nn::Module>();
    net->register_parameter("a", torch::ones({2}));
    if (group.rank() != odd) {
      net->register_parameter("b", torch::ones({3}));
    }
    const auto text = error_on_all(group, [&] { (void)Reducer(net, group); });
    REQUIRE_THAT(
        text,
        ContainsSubstring("parameter 1") && ContainsSubstring("b Float [3]") &&
            ContainsSubstring("none"));
    REQUIRE_THAT(
        text, ContainsSubstring(odd == 0 ? "rank 1 has" : "rank 2 has"));
  }
}

RANKS_TEST("strides that differ are refused on all by name") {
  torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 3, 2));
  if (group.rank() == 2) {
    net->weight.set_data(
        net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  REQUIRE_THAT(
      error_on_all(group, [&] { (void)Reducer(net, group); }),
      ContainsSubstring("rank 2 has as parameter 0 weight Float [3, 2, 2, 2] "
                        "with strides [8, 1, 4, 2]") &&
          ContainsSubstring("rank 0 has weight Float [3, 2, 2, 2] with "
                            "strides [8, 4, 2, 1]"));
}

RANKS_TEST("buffers that differ are refused on all by name") {
  auto net = std::make_shared<BranchNet>();
  const int64_t odd = group.rank() == 1 ? 1 : 0;
  net->register_buffer("seen", torch::zeros({2 + odd}));
  REQUIRE_THAT(
      error_on_all(group, [&] { (void)Reducer(net, group); }),
      ContainsSubstring("seen Float [3]") &&
          ContainsSubstring("seen Float [2]"));
  // Not where they stay each rank's own.
  Reducer ignoring(net, group, ReducerOptions().parameters_to_ignore({"seen"}));
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
        thrown,
        ContainsSubstring("rank 2 has options (") && ContainsSubstring(text) &&
            !ContainsSubstring("timeline_steps"));
    if (text.find("parameters") == std::string::npos) { // which leave some out
      REQUIRE_THAT(
          thrown, ContainsSubstring("the options are not the same on all"));
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
      Reducer(net, group, options),
      ContainsSubstring("there is no 'lefd.bias'"));
}

} // namespace ddp::test::python_construction_test
