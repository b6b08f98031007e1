// Sharded optimizer state, saved and loaded.
#include <ddp/ddp.h>
#include <tests/support/failures.h>
#include <tests/support/ivalue_text.h>
#include <tests/support/ranks.h>
#include <tests/support/sharded.h>

namespace ddp::test::zero_redundancy_state_test {

using torch::optim::OptimizerParamGroup;

/// Steps on gradients that are equal on all ranks.
void train(
    UnevenNet& net,
    torch::optim::Optimizer& optimizer,
    int64_t begin,
    int64_t end) {
  for (int64_t step = begin; step < end; ++step) {
    net.zero_grad();
    torch::manual_seed(step);
    net.forward(torch::randn({5, 7})).sum().backward();
    optimizer.step();
  }
}

TEST_CASE("a sharded state is saved whole and loaded on any number of ranks") {
  const SharedFolder folder;
  const auto path = folder.path + "/run.pt";
  // Three ranks save; four ranks, and one process without shards, resume.
  ranks(3, [path](ProcessGroup group) {
    const auto net = start_net();
    Zero<torch::optim::Adam> optimizer(
        net->parameters(), group, torch::optim::AdamOptions(1e-2));
    train(*net, optimizer, 0, 3);
    TrainingState state;
    state.add("net", net).add("optimizer", optimizer).save(path, group);
  });
  const auto alone = [] {
    const auto net = start_net();
    torch::optim::Adam optimizer(
        net->parameters(), torch::optim::AdamOptions(1e-2));
    train(*net, optimizer, 0, 6);
    return net;
  };
  ranks(4, [path, alone](ProcessGroup group) {
    auto net = std::make_shared<UnevenNet>();
    Zero<torch::optim::Adam> optimizer(
        net->parameters(), group, torch::optim::AdamOptions(1));
    TrainingState state;
    state.add("net", net).add("optimizer", optimizer);
    REQUIRE(state.load(path, group));
    REQUIRE(optimizer.state().size() < net->parameters().size());
    train(*net, optimizer, 3, 6);
    REQUIRE(same_parameters(*net, *alone()));
  });
  ranks(1, [path, alone] {
    auto net = std::make_shared<UnevenNet>();
    torch::optim::Adam optimizer(
        net->parameters(), torch::optim::AdamOptions(1));
    TrainingState state;
    state.add("net", net).add("optimizer", optimizer);
    REQUIRE(state.load(path));
    train(*net, optimizer, 3, 6);
    REQUIRE(same_parameters(*net, *alone()));
  });
}

RANKS_TEST("a whole state that is kept does not change in later steps") {
  const auto net = start_net();
  Zero<torch::optim::Adam> optimizer(net->parameters(), group);
  for (const int64_t to : {0, 2}) {
    train(*net, optimizer, 0, 2);
    const auto whole = optimizer.state_dict(to);
    const auto before = text_of(whole);
    train(*net, optimizer, 2, 3);
    if (group.rank() == to) {
      REQUIRE((text_of(whole) == before));
    }
  }
}

RANKS_TEST("loaded states of others' parameters are not saved again") {
  const auto options = torch::optim::AdamOptions(1e-2);
  const auto net = start_net();
  const auto whole_net = start_net();
  Zero<torch::optim::Adam> optimizer(net->parameters(), group, options);
  torch::optim::Adam plain(whole_net->parameters(), options);
  train(*net, optimizer, 0, 2);
  train(*whole_net, plain, 0, 2);
  load_optimizer_state(optimizer, optimizer_state(plain)); // of all parameters
  train(*net, optimizer, 2, 4);
  train(*whole_net, plain, 2, 4);
  const auto states = [](const c10::IValue& state) {
    return entry(state, "state");
  };
  for (const int64_t to : {0, 2}) {
    const auto state = optimizer.state_dict(to);
    if (group.rank() == to) {
      REQUIRE(
          (text_of(states(state)) == text_of(states(optimizer_state(plain)))));
    }
  }
  const auto part = states(optimizer.local_state_dict()).toGenericDict();
  REQUIRE(part.size() < net->parameters().size());
}

TEST_CASE("each rank's part of a sharded state is saved and loaded by itself") {
  const SharedFolder folder;
  const auto file = [path = folder.path](int64_t rank) {
    return path + "/optimizer-" + std::to_string(rank) + ".pt";
  };
  ranks(3, [file](ProcessGroup group) {
    const auto net = start_net();
    const auto options = torch::optim::AdamOptions(1e-2);
    Zero<torch::optim::Adam> optimizer(net->parameters(), group, options);
    train(*net, optimizer, 0, 3);
    write_checkpoint_file(file(group.rank()), optimizer.local_state_dict());
    Zero<torch::optim::Adam> loaded(net->parameters(), group);
    loaded.load_state_dict(read_checkpoint_file(file(group.rank())));
    REQUIRE(loaded.state().size() == optimizer.state().size());
    train(*net, loaded, 3, 6);
    const auto whole = start_net();
    torch::optim::Adam plain(whole->parameters(), options);
    train(*whole, plain, 0, 6);
    REQUIRE(same_parameters(*net, *whole));
    group.barrier(); // all files exist
    const auto others = read_checkpoint_file(file((group.rank() + 1) % 3));
    REQUIRE_THROWS_WITH(
        loaded.load_state_dict(others), Has("was not saved by rank"));
    REQUIRE_THROWS_WITH(
        load_optimizer_state(plain, others), Has("one rank's shard"));
  });
  ranks(2, [file](ProcessGroup group) {
    const auto net = start_net();
    Zero<torch::optim::Adam> optimizer(net->parameters(), group);
    const auto part = read_checkpoint_file(file(group.rank()));
    REQUIRE_THROWS_WITH(
        optimizer.load_state_dict(part), Has("on the same number of ranks"));
  });
}

RANKS_TEST("one rank's part that was saved as the whole state is refused") {
  const auto net = start_net();
  Zero<torch::optim::Adam> optimizer(net->parameters(), group);
  train(*net, optimizer, 0, 1);
  // As with a CheckpointManager of each host: only rank 0's host gets a state.
  const bool is_second = group.rank() > 0;
  const auto host = group.split(is_second ? 1 : 0);
  const auto path = folder + (is_second ? "second.pt" : "first.pt");
  TrainingState state;
  state.add("optimizer", optimizer).save(path, host);
  if (is_second) {
    REQUIRE_THROWS_WITH(state.load(path, host), Has("one rank's part"));
  } else {
    REQUIRE(state.load(path, host));
  }
  group.barrier(); // rank 0 serves the store of both hosts
}

RANKS_TEST("a sharded state is loaded for groups that were added too") {
  using torch::optim::AdamOptions;
  const auto make = [&](std::vector<torch::Tensor>& parameters) {
    for (int i = 0; i < 4; ++i) {
      parameters.push_back(torch::ones({3 + i}).requires_grad_());
      parameters.back().mutable_grad() = torch::full({3 + i}, 1.0 + i);
    }
    auto optimizer = std::make_unique<Zero<torch::optim::Adam>>(
        std::vector<torch::Tensor>{parameters[0], parameters[1]},
        group,
        AdamOptions(0.1));
    OptimizerParamGroup late({parameters[2], parameters[3]});
    late.set_options(std::make_unique<AdamOptions>(0.1));
    optimizer->add_param_group(late);
    return optimizer;
  };
  const auto path = folder + "state.pt";
  std::vector<torch::Tensor> first_parameters;
  std::vector<torch::Tensor> second_parameters;
  const auto first = make(first_parameters);
  first->step();
  first->step();
  TrainingState().add("optimizer", *first).save(path, group);
  const auto second = make(second_parameters);
  TrainingState().add("optimizer", *second).load(path, group);
  for (size_t i = 0; i < 4; ++i) {
    const torch::NoGradGuard no_grad;
    second_parameters[i].copy_(first_parameters[i]);
    second_parameters[i].mutable_grad().mul_(-3);
    first_parameters[i].mutable_grad().mul_(-3);
  }
  first->step();
  second->step();
  for (size_t i = 0; i < 4; ++i) {
    REQUIRE(second_parameters[i].equal(first_parameters[i]));
  }
}

RANKS_TEST("a parameter that is listed several times has one owner") {
  for (const bool views : {false, true}) {
    auto parameters = with_gradients({2, 4, 3});
    parameters.push_back(parameters[1]);
    Zero<torch::optim::SGD> optimizer(
        parameters,
        group,
        torch::optim::SGDOptions(1.0).momentum(0.5),
        ZeroRedundancyOptions().parameters_as_bucket_view(views));
    optimizer.add_param_group(OptimizerParamGroup({parameters[2]}));
    optimizer.step();
    optimizer.step();
    for (const auto& parameter : parameters) {
      REQUIRE(parameter.equal(torch::full_like(parameter, -1.5)));
    }
    REQUIRE(optimizer.state().size() == 1);
    const auto whole = optimizer.state_dict();
    if (group.rank() == 0) { // as of an optimizer that is not sharded
      REQUIRE(entry(whole, "state").toGenericDict().size() == 5);
    }
    optimizer.load_state_dict(optimizer.local_state_dict());
    REQUIRE(optimizer.state().size() == 1);
  }
}

// Parameters that a sharded optimizer makes views of its buckets.

/// Parameters of several layouts, equal on all ranks.
std::vector<torch::Tensor> of_layouts() {
  torch::manual_seed(4);
  std::vector<torch::Tensor> parameters = {
      torch::randn({4, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast),
      torch::randn({5, 2}),
      torch::randn({2, 6}).t(),
      torch::randn({3, 5, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast),
      torch::randn({4, 6}).narrow(1, 0, 5), // with gaps
      torch::randn({2, 2, 2, 2, 2})
          .contiguous(torch::MemoryFormat::ChannelsLast3d)};
  for (auto& parameter : parameters) {
    parameter = parameter.detach().requires_grad_();
  }
  return parameters;
}

RANKS_TEST("parameters that become views keep their layout") {
  auto plain = of_layouts();
  auto sharded = of_layouts();
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD expected(plain, options);
  Zero<torch::optim::SGD> optimizer(
      sharded,
      group,
      options,
      ZeroRedundancyOptions().parameters_as_bucket_view(true));
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < plain.size(); ++i) {
      plain[i].mutable_grad() = torch::randn_like(plain[i]);
      sharded[i].mutable_grad() = plain[i].grad().clone();
    }
    expected.step();
    optimizer.step();
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(sharded[i].equal(plain[i]));
    if (plain[i].is_non_overlapping_and_dense()) {
      REQUIRE(sharded[i].strides() == plain[i].strides());
    }
  }
}

RANKS_TEST("parameters that become views have the same layout on all ranks") {
  auto parameter = torch::ones({4, 3, 2, 2}).requires_grad_();
  if (group.rank() == 1) {
    parameter = parameter.detach()
                    .contiguous(torch::MemoryFormat::ChannelsLast)
                    .requires_grad_();
  }
  Zero<torch::optim::SGD> optimizer(
      std::vector<torch::Tensor>{parameter},
      group,
      torch::optim::SGDOptions(0.1),
      ZeroRedundancyOptions().parameters_as_bucket_view(true));
  parameter.mutable_grad() = torch::ones_like(parameter);
  REQUIRE_THROWS_WITH(optimizer.step(), Has("strides"));
}

} // namespace ddp::test::zero_redundancy_state_test
