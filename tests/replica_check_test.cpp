// The first checkpoint reports if ranks have drifted apart.
#include <tests/support/free_port.h>
#include <tests/support/ranks.h>

#include <ddp/comm_hook.h>
#include <ddp/ddp.h>

namespace ddp::test::replica_check_test {

using torch::nn::Linear;

Linear make_layer() {
  torch::manual_seed(1);
  return Linear(3, 2);
}

/// Changes rank 2's bias.
void drift(Linear& layer, const ProcessGroup& group) {
  if (group.rank() == 2) {
    const torch::NoGradGuard no_grad;
    layer->bias.mul_(1.001);
  }
}

/// The warnings of `function` on all ranks. Collective.
template <typename Function>
std::string all_warnings_of(Function&& function, const ProcessGroup& group) {
  const auto own = c10::Join("", warnings_of(function));
  return c10::Join("", group.all_gather(own));
}

/// Requires one warning, on rank 0 only, and returns it on all ranks.
template <typename Function>
std::string rank_0_warns(Function&& function, const ProcessGroup& group) {
  const auto texts = warnings_of(function);
  REQUIRE(texts.size() == (group.rank() == 0 ? 1 : 0));
  return group.broadcast(texts.empty() ? "" : texts[0]);
}

RANKS_TEST("a first checkpoint tells which parameter differs on which rank") {
  auto layer = make_layer();
  const Reducer reducer(layer, group);
  drift(layer, group);
  const auto save = [&] { save_checkpoint(folder + "net.pt", *layer, group); };
  REQUIRE_THAT(
      rank_0_warns(save, group),
      Has("the parameters differ between ranks: bias",
          "rank 2",
          "the same optimizer and learning rate"));
  REQUIRE(warnings_of(save).empty()); // only once
}

RANKS_TEST("a checkpoint before the training uses no comparison up") {
  auto layer = make_layer();
  const Reducer reducer(layer, group);
  const auto save = [&] { save_checkpoint(folder + "net.pt", *layer, group); };
  REQUIRE(warnings_of(save).empty());
  drift(layer, group);
  rank_0_warns(save, group);
  REQUIRE(warnings_of(save).empty()); // only once
}

RANKS_TEST("of several modules in a state each is compared") {
  auto first = make_layer();
  auto second = make_layer();
  const Reducer reducer(second, group);
  drift(second, group);
  drift(first, group); // not averaged
  TrainingState state;
  state.add("generator", first).add("discriminator", second);
  const auto save = [&] { state.save(folder + "run.pt", group); };
  REQUIRE_THAT(rank_0_warns(save, group), Has(": discriminator.bias"));
}

RANKS_TEST("a first checkpoint tells of another optimizer or learning rate") {
  auto layer = make_layer();
  torch::optim::SGD optimizer(
      layer->parameters(), group.rank() == 1 ? 0.25 : 0.5);
  TrainingState state;
  state.add("net", layer).add("optimizer", optimizer);
  const auto save = [&] { state.save(folder + "run.pt", group); };
  REQUIRE_THAT(
      rank_0_warns(save, group),
      Has("'optimizer' differs between ranks: ranks 0 and 2: "
          "torch::optim::SGD with learning rates 0.5; rank 1: "
          "torch::optim::SGD with learning rates 0.25. "));
}

RANKS_TEST("a checkpoint tells where training went on without its Reducer") {
  auto layer = make_layer();
  const auto backward = [&] {
    layer->forward(torch::full({1, 3}, 1.0 + group.rank())).sum().backward();
  };
  const auto train = [&] {
    {
      const Reducer local(layer, group);
      backward();
    }
    backward();
    drift(layer, group);
  };
  REQUIRE(all_warnings_of(train, group) == ""); // one rank may do so
  REQUIRE_THAT(
      all_warnings_of(
          [&] { save_checkpoint(folder + "net.pt", *layer, group); }, group),
      Has("bias", "with a Reducer that still exists"));
}

RANKS_TEST("a first checkpoint tells of a net that no Reducer averages") {
  for (const bool other_lives : {false, true}) {
    const auto part = group.duplicate();
    auto other = make_layer();
    std::optional<Reducer> reducer;
    if (other_lives) {
      reducer.emplace(other, part);
    }
    auto layer = make_layer();
    const auto save = [&] { save_checkpoint(folder + "net.pt", *layer, part); };
    drift(layer, part);
    REQUIRE(warnings_of(save).empty()); // not trained
    layer->forward(torch::ones({1, 3})).sum().backward();
    REQUIRE_THAT(
        rank_0_warns(save, part),
        Has("the parameters differ between ranks: bias",
            "with a Reducer that still exists"));
  }
}

RANKS_TEST("a first checkpoint tells of ignored parameters that differ") {
  torch::nn::Sequential net(make_layer(), Linear(2, 2));
  const auto table = net[1]->as<torch::nn::LinearImpl>()->weight;
  const Reducer reducer(
      net, group, ReducerOptions().parameters_to_ignore({"1.weight"}));
  torch::nn::init::constant_(table, group.rank());
  const auto save = [&] { save_checkpoint(folder + "net.pt", *net, group); };
  table.set_requires_grad(false);
  REQUIRE(warnings_of(save).empty()); // not trained
  table.set_requires_grad(true);
  REQUIRE_THAT(
      rank_0_warns(save, group),
      Has("rank 0's values, the parameters differ between ranks: 1.weight",
          "No Reducer averages them",
          "rank_state_dict()"));
}

RANKS_TEST("a net that parts of the group may average is not compared") {
  const auto part = group.split(group.rank() / 2);
  auto layer = make_layer();
  drift(layer, group);
  layer->forward(torch::ones({1, 3})).sum().backward();
  REQUIRE(warnings_of([&] {
            save_checkpoint(folder + "net.pt", *layer, group);
          }).empty());
}

STARTED_TEST("a training over whose group nothing was averaged is told of") {
  const auto said_after = [](const std::function<void(ProcessGroup)>& work) {
    const auto texts = warnings_of([&] {
      try {
        work(init_process_group());
      } catch (const std::runtime_error&) { // the test's own
      }
    });
    return c10::Join("", texts);
  };
  const auto train = [](Linear layer = make_layer()) {
    layer->forward(torch::ones({1, 3})).sum().backward();
  };
  const auto alone =
      Has("the group of 3 ranks ended without averaging anything");
  for (const bool shuts_down : {false, true}) {
    const auto text = said_after([&](ProcessGroup group) {
      manual_seed(1, group);
      const DistributedSampler sampler(12, group);
      const DistributedSampler evaluation(
          6, group, SamplerOptions().shuffle(false));
      train();
      mean(1, group); // of a loss, not of the nets
      if (shuts_down) {
        group.shutdown();
      }
    });
    REQUIRE(alone.match(text) == (own_rank() == 0)); // once for all ranks
  }
  const auto weighted = said_after([&](const ProcessGroup& group) {
    const DistributedWeightedSampler sampler(torch::ones({4}), 12, group);
    train();
    mean(1, group);
  });
  REQUIRE(alone.match(weighted) == (own_rank() == 0));
  const std::vector<std::function<void(ProcessGroup)>> fine{
      [](const ProcessGroup& group) { group.barrier(); }, // without training
      [&](const ProcessGroup& group) {
        auto layer = make_layer();
        const Reducer reducer(layer, group);
        train(layer);
      },
      [&](const ProcessGroup& group) {
        train();
        group.all_reduce(torch::ones({1}));
      },
      [&](const ProcessGroup& group) { // an evaluation, maybe
        train();
        mean(1, group);
      },
      [&](const ProcessGroup& group) {
        auto layer = make_layer();
        const Reducer reducer(layer, group.split(group.rank() % 2));
        train(layer);
      },
      [&](const ProcessGroup& group) { // for evaluations
        const auto port = group.broadcast(std::to_string(free_port()));
        const auto other = init_process_group(
            ProcessGroupOptions().master_port(std::stoi(port)));
        auto layer = make_layer();
        const Reducer reducer(layer, other);
        train(layer);
        const DistributedSampler sampler(12, group);
        mean(1, group);
      },
      [&](const ProcessGroup&) { // each rank trains a net of its own
        auto layer = make_layer();
        const Reducer reducer(
            layer,
            init_process_group(ProcessGroupOptions().rank(0).world_size(1)));
        train(layer);
      },
      [&](const ProcessGroup&) {
        train();
        throw std::runtime_error("the program ended early");
      }};
  for (const auto& work : fine) {
    REQUIRE_THAT(said_after(work), !alone);
  }
}

RANKS_TEST("at the end of training ranks that differ are told of") {
  const auto train = [&](bool drifts, ReducerOptions options) {
    auto layer = make_layer();
    Reducer reducer(layer, group, options);
    layer->forward(torch::full({1, 3}, 1.0 + group.rank())).sum().backward();
    if (drifts) {
      drift(layer, group);
    }
  };
  const auto said = [&](bool drifts, ReducerOptions options = {}) {
    return all_warnings_of([&] { train(drifts, options); }, group);
  };
  REQUIRE_THAT(
      said(true),
      Has("at the end of training, after 1 step, the parameter "
          "bias of rank 2 differs from rank 0's"));
  REQUIRE(said(false) == "");
  REQUIRE(
      said(
          true,
          ReducerOptions().comm_hook(std::make_shared<AllReduceHook>())) == "");
}

RANKS_TEST("at the end of training a layer that was added is compared, too") {
  const auto train = [&](bool adds) {
    torch::nn::Sequential net(make_layer());
    Reducer reducer(net, group);
    const auto step = [&] {
      net->forward(torch::full({1, 3}, 1.0 + group.rank())).sum().backward();
    };
    for (int i = 0; i < 3; ++i) {
      step();
    }
    if (adds) {
      net->push_back(Linear(2, 2));
      torch::nn::init::constant_(
          net[1]->as<torch::nn::LinearImpl>()->weight, group.rank());
      step();
    }
  };
  REQUIRE_THAT(
      all_warnings_of([&] { train(true); }, group),
      Has("after 4 steps, the parameter 1.weight of rank 1",
          "after all layers were registered"));
  REQUIRE(all_warnings_of([&] { train(false); }, group) == "");
}

RANKS_TEST("at the end of training a layer of a frozen net is compared, too") {
  const auto train = [&] {
    torch::nn::Sequential net(make_layer());
    Reducer reducer(net, group);
    for (auto& parameter : net->parameters()) {
      parameter.set_requires_grad(false);
    }
    net->push_back(Linear(2, 2));
    torch::nn::init::constant_(
        net[1]->as<torch::nn::LinearImpl>()->weight, group.rank());
    net->forward(torch::ones({1, 3})).sum().backward();
  };
  REQUIRE_THAT(
      all_warnings_of(train, group),
      Has("after 0 steps, the parameter 1.weight of rank 1",
          "were layers added later"));
}

RANKS_TEST("ranks that never reduced a gradient are told at the end") {
  const auto train = [&] {
    auto layer = make_layer();
    Reducer reducer(layer, group);
    const auto guard = reducer.no_sync();
    layer->forward(torch::ones({1, 3})).sum().backward();
    drift(layer, group);
  };
  REQUIRE_THAT(
      all_warnings_of(train, group),
      Has("after 0 steps, the parameter bias of rank 2",
          "was each backward pass under no_sync()"));
}

RANKS_TEST("updates by gradients that never came into grad() are compared") {
  const auto train = [&] {
    auto layer = make_layer();
    Reducer reducer(layer, group);
    const auto loss =
        layer->forward(torch::full({1, 3}, 1.0 + group.rank())).sum();
    const auto gradient = torch::autograd::grad({loss}, {layer->weight})[0];
    const torch::NoGradGuard no_grad;
    layer->weight -= gradient;
  };
  REQUIRE_THAT(
      all_warnings_of(train, group),
      Has("after 0 steps, the parameter weight of rank 1",
          "did autograd::grad() compute the gradients?"));
}

RANKS_TEST("gradients of zero are no sign of the same data") {
  auto layer = make_layer();
  Reducer reducer(layer, group);
  REQUIRE(warnings_of([&] {
            for (int step = 0; step < 3; ++step) {
              (layer->forward(torch::ones({1, 3})).sum() * 0).backward();
            }
          }).empty());
}

RANKS_TEST("the same data on all ranks is told of") {
  for (const bool same : {true, false}) {
    auto layer = make_layer();
    Reducer reducer(layer, group);
    int64_t said = 0;
    for (int step = 0; step < 2; ++step) {
      const auto scale = same ? 1 : 1 + group.rank();
      const auto texts = warnings_of([&] {
        layer->forward(torch::ones({1, 3}) * scale).sum().backward();
      });
      said += static_cast<int64_t>(texts.size());
      for (const auto& text : texts) {
        REQUIRE_THAT(text, Has("do they train on the same"));
      }
    }
    auto all = torch::full({1}, said);
    group.all_reduce(all);
    REQUIRE(all.item<int64_t>() == (same ? 1 : 0));
  }
}

STARTED_TEST("equal ranks, and those told not to, hear nothing") {
  for (const bool checks : {true, false}) {
    const auto group =
        init_process_group(ProcessGroupOptions().check_replicas(checks));
    const auto train = [&] {
      auto layer = make_layer();
      const Reducer reducer(layer, group);
      const auto data = torch::full({1, 3}, checks ? group.rank() : 1.0);
      layer->forward(data).sum().backward();
      layer->forward(data).sum().backward();
      if (!checks) {
        drift(layer, group);
      }
      save_checkpoint(folder + "net.pt", *layer, group);
    };
    REQUIRE(all_warnings_of(train, group) == "");
  }
}

} // namespace ddp::test::replica_check_test
