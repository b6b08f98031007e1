// A Reducer that resumes with the layout of another.
#include <tests/support/comm_hooks.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

namespace ddp::test::reducer_state_test {

using c10::IValue;

constexpr int64_t kSteps = 6;

/// Gradients become ready in another order than that of registration.
struct ShuffledNet : LayeredNet {
  torch::nn::Linear a = linear("a", 29, 31);
  torch::nn::Linear b = linear("b", 37, 29);
  torch::nn::Linear c = linear("c", 23, 3);
  torch::nn::Linear d = linear("d", 5, 37);
  torch::nn::Linear e = linear("e", 31, 23);
  torch::Tensor forward(torch::Tensor x) {
    return c(torch::tanh(e(torch::tanh(a(torch::tanh(b(torch::tanh(d(x)))))))));
  }
};

struct Run {
  Run(const ProcessGroup& own_group, const ReducerOptions& options)
      : group(own_group),
        // There are many Reducers here, and connections take time.
        reducer(net, group, ReducerOptions(options).share_communicator(true)) {
    state.add("net", net).add("optimizer", optimizer).add("step", step);
    state.add("reducer", reducer);
  }

  void train_to(int64_t end) {
    for (; step < end; ++step) {
      const auto input = batch(group, step, 5);
      optimizer.zero_grad();
      net->forward(input).square().mean().backward();
      optimizer.step();
    }
  }

  bool has_bits_of(const Run& other) const {
    return same_parameters(*net, *other.net);
  }

  ProcessGroup group;
  std::shared_ptr<ShuffledNet> net = [] {
    torch::manual_seed(7);
    return std::make_shared<ShuffledNet>();
  }();
  Reducer reducer;
  torch::optim::SGD optimizer{
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9)};
  int64_t step = 0;
  TrainingState state;
};

ReducerOptions small_buckets() {
  return ReducerOptions().bucket_cap_mb(0.002);
}

/// The state, but with the Reducer part of a fresh run.
IValue forget_layout(const IValue& state, const Run& fresh) {
  auto dict = state.deepcopy();
  dict.toGenericDict().insert_or_assign(
      "reducer", fresh.reducer.state_dict().deepcopy());
  return dict;
}

/// The order of gradients is known after `learns` steps; 0: never.
void compare(
    const ProcessGroup& group,
    const ReducerOptions& options,
    int64_t learns) {
  Run whole(group, options);
  whole.train_to(kSteps);
  for (const int64_t stop : {0, 1, 2, 3}) {
    INFO("stopped after " << stop);
    Run first(group, options);
    first.train_to(stop);
    const auto state = first.state.state_dict(group).deepcopy();
    const auto layout = first.reducer.buckets();
    first.train_to(kSteps);
    REQUIRE(first.has_bits_of(whole));

    for (const int64_t before : {0, 3}) { // fresh, and in use already
      Run resumed(group, options);
      resumed.train_to(before);
      resumed.state.load_state_dict(state, group);
      REQUIRE(resumed.reducer.buckets() == layout);
      resumed.train_to(kSteps);
      REQUIRE(resumed.has_bits_of(whole));
      REQUIRE(resumed.reducer.buckets() == whole.reducer.buckets());
    }

    Run forgetful(group, options);
    forgetful.state.load_state_dict(forget_layout(state, forgetful), group);
    const bool learned = learns > 0 && stop >= learns;
    REQUIRE((forgetful.reducer.buckets() == layout) == !learned);
    forgetful.train_to(kSteps);
    REQUIRE(forgetful.reducer.buckets() == whole.reducer.buckets());
    // Another order of buckets may change bits, but need not.
    if (learns == 0 || stop == 0) {
      REQUIRE(forgetful.has_bits_of(whole));
    }
  }
}

RANKS_TEST("a run that goes on adds gradients as one that never stopped") {
  compare(group, small_buckets(), 1);
  compare(group, small_buckets().static_graph(true), 2);
  compare(group, small_buckets().find_unused_parameters(true), 0);
  compare(group, ReducerOptions().bucket_cap_mb_list({0.001, 0.004}), 1);
}

RANKS_TEST("a state with the layout of the buckets does not move them") {
  Run run(group, small_buckets().gradient_as_bucket_view(true));
  run.train_to(2);
  const auto before = memory_of_gradients(*run.net);
  run.reducer.load_state_dict(run.reducer.state_dict());
  REQUIRE(memory_of_gradients(*run.net) == before);
}

RANKS_TEST("a file has the layout, of a wrapper's Reducer too") {
  const auto make = [&] {
    return DistributedDataParallel<ShuffledNet>(
        std::make_shared<ShuffledNet>(), group, small_buckets());
  };
  auto model = make();
  model->forward(torch::ones({2, 5})).sum().backward();
  TrainingState state;
  state.add("model", model).add("reducer", model->reducer());
  state.save(folder + "/run.pt", group);

  auto resumed = make();
  REQUIRE(resumed->reducer().buckets() != model->reducer().buckets());
  TrainingState other;
  other.add("model", resumed).add("reducer", resumed->reducer());
  REQUIRE(other.load(folder + "/run.pt", group));
  REQUIRE(resumed->reducer().buckets() == model->reducer().buckets());
}

RANKS_TEST("a run with another hook resumes without the Reducer's state") {
  const auto path = folder + "/run.pt";
  Run first(group, small_buckets().comm_hook(std::make_shared<PowerSGDHook>()));
  first.train_to(1);
  first.state.save(path, group);
  for (const auto& hook : Hooks{nullptr, chain_of({fp16_compress_hook()})}) {
    Run run(group, small_buckets().comm_hook(hook));
    REQUIRE_THROWS_WITH(
        run.state.load(path, group), Has("before adding the Reducer to it"));
    TrainingState state;
    state.add("net", run.net).add("optimizer", run.optimizer);
    state.add("step", run.step);
    REQUIRE(state.load(path, group));
    REQUIRE(run.has_bits_of(first));
    state.add("reducer", run.reducer);
    run.train_to(2);
    state.save(folder + "/next.pt", group);
    REQUIRE(state.load(folder + "/next.pt", group));
  }
}

RANKS_TEST("what was unfrozen in the first run keeps its buckets") {
  const auto make = [](bool frozen) {
    auto net = std::make_shared<ShuffledNet>();
    set_requires_grad(*net->b, !frozen);
    return net;
  };
  for (const bool unused : {false, true}) {
    const auto options = small_buckets().find_unused_parameters(unused);
    const auto backward = [](ShuffledNet& net) {
      net.forward(torch::ones({2, 5})).sum().backward();
    };
    const auto net = make(true);
    Reducer whole(net, group, options);
    backward(*net);
    const auto frozen_state = whole.state_dict().deepcopy();
    set_requires_grad(*net->b, true);
    backward(*net);
    for (const bool frozen : {false, true}) { // when it resumes
      const auto resumed_net = make(frozen);
      Reducer resumed(resumed_net, group, options);
      resumed.load_state_dict(whole.state_dict());
      REQUIRE(resumed.buckets() == whole.buckets());
      resumed.load_state_dict(frozen_state);
      REQUIRE(resumed.buckets() != whole.buckets());
      set_requires_grad(*resumed_net->b, true);
      backward(*resumed_net); // adds it as the first run did
      REQUIRE(resumed.buckets() == whole.buckets());
      for (const auto& parameter : resumed_net->parameters()) {
        REQUIRE(parameter.grad().defined());
      }
    }
  }
}

RANKS_TEST("the options of the run that goes on decide") {
  Run first(group, small_buckets());
  first.train_to(1);
  const auto state = first.reducer.state_dict();

  Run larger(group, ReducerOptions());
  larger.reducer.load_state_dict(state);
  REQUIRE(larger.reducer.buckets().size() == 1); // but in another order
  REQUIRE(larger.reducer.buckets() != Run(group, {}).reducer.buckets());

  const auto never = small_buckets().find_unused_parameters(true);
  Run fixed(group, never);
  const auto layout = fixed.reducer.buckets();
  fixed.reducer.load_state_dict(state);
  REQUIRE(fixed.reducer.buckets() == layout);
  fixed.train_to(3);
  REQUIRE(fixed.reducer.buckets() == layout);

  Run learning(group, small_buckets());
  learning.reducer.load_state_dict(fixed.reducer.state_dict());
  learning.train_to(1);
  REQUIRE(learning.reducer.buckets() == first.reducer.buckets());
}

RANKS_TEST("a group of one takes a layout and passes it on") {
  Run first(group, small_buckets());
  first.train_to(1);
  Run alone(ProcessGroup(), small_buckets());
  alone.reducer.load_state_dict(first.reducer.state_dict());
  alone.train_to(2);
  REQUIRE(
      text_of(alone.reducer.state_dict()) ==
      text_of(first.reducer.state_dict()));
  Run fresh(ProcessGroup(), small_buckets());
  Run again(group, small_buckets());
  again.reducer.load_state_dict(fresh.reducer.state_dict());
  again.train_to(1);
  REQUIRE(again.reducer.buckets() == first.reducer.buckets());
}

RANKS_TEST("the layout of another model is refused and changes nothing") {
  Run run(group, small_buckets());
  const auto before = run.reducer.buckets();
  const auto reject = [&](const IValue& state, const std::string& reason) {
    REQUIRE_THROWS_WITH(run.reducer.load_state_dict(state), Has(reason));
    REQUIRE(run.reducer.buckets() == before);
  };
  const auto refuse_of = [&](const auto& target, const std::string& reason) {
    Reducer other(target, group, small_buckets());
    reject(other.state_dict(), reason);
  };
  refuse_of(
      std::make_shared<UnevenNet>(),
      "parameter 0 is first.weight [513, 7] in the state, and a.weight [31, "
      "29] in this Reducer");
  auto parameters = ShuffledNet().named_parameters();
  parameters.insert("f", torch::zeros({2}, torch::requires_grad()));
  refuse_of(
      parameters,
      "parameter 10 is f [2] in the state, and missing in this Reducer");
  auto fewer = ShuffledNet().named_parameters();
  fewer.erase("e.bias");
  refuse_of(
      fewer,
      "parameter 9 is missing in the state, and e.bias [23] in this Reducer");

  Run trained(group, small_buckets());
  trained.train_to(1);
  const auto good = trained.reducer.state_dict();
  const auto refuse_with =
      [&](const char* key, const IValue& value, const std::string& reason) {
        auto state = good.deepcopy();
        state.toGenericDict().insert_or_assign(key, value);
        reject(state, reason);
      };
  reject(3, "not saved by a Reducer");
  refuse_with("orders", 3, "not saved by a Reducer");
  refuse_with("rebuilt", 3, "not saved by a Reducer");
  refuse_with("rebuild_in", -1, "not saved by a Reducer");
  using Orders = std::vector<std::vector<int64_t>>;
  refuse_with("orders", Orders{{0, 1}, {1}}, "occurs twice or does not exist");
  refuse_with("orders", Orders{{10}}, "parameter 10 of 10");
  refuse_with("orders", Orders{{-1}}, "parameter -1 of 10");
  run.reducer.load_state_dict(good);
  REQUIRE(run.reducer.buckets() == trained.reducer.buckets());

  const auto sparse = ShuffledNet().named_parameters();
  Reducer other(sparse, group, small_buckets().sparse_parameters({"a.weight"}));
  REQUIRE_THROWS_WITH(
      other.load_state_dict(good),
      Has("a.weight is dense in the state, and sparse in this Reducer"));
}

} // namespace ddp::test::reducer_state_test
