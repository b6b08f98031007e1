// Errors of sharded optimizers, and their report on other ranks.
#include <tests/support/failures.h>
#include <tests/support/sharded.h>

#include <ddp/ddp.h>

namespace ddp::test::zero_redundancy_failures_test {

RANKS_TEST("a sharded optimizer is saved by its own type only") {
  const auto net = std::make_shared<UnevenNet>();
  Zero<torch::optim::Adam> optimizer(net->parameters(), group);
  torch::optim::Optimizer& base = optimizer;
  REQUIRE_THROWS_WITH(
      TrainingState().add("optimizer", base),
      Has("'optimizer' shards its state over ranks"));
}

TEST_CASE("where one rank has lost a parameter the others hear why") {
  for (const bool saves : {true, false}) {
    ranks(3, [saves](ProcessGroup group) {
      auto parameters = with_gradients({9, 6, 3});
      Zero<torch::optim::Adam> optimizer(
          parameters, group, torch::optim::AdamOptions(0.1));
      optimizer.step();
      if (group.rank() == 1) {
        optimizer.param_groups()[0].params().pop_back();
      }
      TrainingState state;
      state.add("optimizer", optimizer);
      const auto act = [&] {
        saves ? void(state.state_dict(group)) : void(optimizer.step());
      };
      REQUIRE_THROWS_WITH(act(), Has("removed from group 0"));
      meet_at_store(group, {"0", "1", "2"});
    });
  }
}

TEST_CASE("a sharded optimizer that differs between ranks is refused") {
  for (const bool order : {true, false}) {
    ranks(3, [order](ProcessGroup group) {
      const bool differs = group.rank() == 1;
      auto parameters = with_gradients({9, 6, 3});
      if (order && differs) {
        std::swap(parameters[0], parameters[1]);
      }
      Zero<torch::optim::Adam> optimizer(
          parameters,
          group,
          torch::optim::AdamOptions(!order && differs ? 0.2 : 0.1));
      REQUIRE_THROWS_WITH(
          optimizer.step(),
          Has("ZeroRedundancyOptimizer differs between ranks",
              order ? "of Float [6], Float [9]" : "learning rates 0.2",
              "ranks 0 and 2: ddp::ZeroRedundancyOptimizer<"));
      meet_at_store(group, {"0", "1", "2"});
    });
  }
}

RANKS_TEST("where one rank cannot step its share the others hear why") {
  auto parameters = with_gradients({9, 6, 3});
  parameters[1].mutable_grad() = torch::ones({6}).to_sparse();
  Zero<torch::optim::Adam> optimizer(
      parameters, group, torch::optim::AdamOptions(0.1));
  REQUIRE_THROWS_WITH(optimizer.step(), Has("sparse"));
  // Not over gloo, where the end of a rank would also be an error.
  meet_at_store(group, {"0", "1", "2"});
}

/// Requires one warning, on rank 0 only, with these words.
void check_rank_0_warns(
    const ProcessGroup& group,
    const std::vector<std::string>& texts,
    const char* difference) {
  REQUIRE(texts.size() == (group.rank() == 0 ? 1 : 0));
  for (const auto& text : texts) {
    REQUIRE_THAT(text, Has(difference, "Does a Reducer average all of these"));
  }
}

RANKS_TEST("a sharded optimizer tells of gradients that nobody averages") {
  const auto said = [&](bool averages) {
    const auto net = start_net();
    Reducer reducer(net, group);
    Zero<torch::optim::SGD> optimizer(
        net->parameters(), group, torch::optim::SGDOptions(0.1));
    return warnings_of([&] {
      const auto guard = averages ? nullptr : reducer.no_sync();
      for (int64_t step = 0; step < 4; ++step) {
        net->zero_grad();
        net->forward(batch(group, step, 7)).pow(2).mean().backward();
        optimizer.step();
      }
    });
  };
  REQUIRE(said(true).empty());
  check_rank_0_warns(
      group,
      said(false),
      "the gradients differ between ranks: parameter 0 (Float [513, 7]) on "
      "ranks 1 and 2 differs from that on rank 0");
}

RANKS_TEST("a sharded optimizer tells of parameters in another order") {
  auto parameters = with_gradients({4, 4});
  parameters[1].mutable_grad().mul_(2);
  if (group.rank() == 1) {
    std::swap(parameters[0], parameters[1]);
  }
  Zero<torch::optim::SGD> optimizer(
      parameters, group, torch::optim::SGDOptions(0.1));
  check_rank_0_warns(
      group,
      warnings_of([&] { optimizer.step(); }),
      "parameter 0 (Float [4]) on rank 1 differs from that on ranks 0 and 2");
}

RANKS_TEST("what a sharded optimizer cannot do is refused") {
  const auto net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group);
  Zero<torch::optim::Adam> optimizer(
      net->parameters(),
      group,
      torch::optim::AdamOptions(1e-2),
      ZeroRedundancyOptions().parameters_as_bucket_view(true));
  REQUIRE_THROWS_WITH(reducer.step_in_backward(optimizer), Has("communicates"));
  REQUIRE_THROWS_AS(optimizer.load_state_dict(c10::IValue(1)), c10::Error);
  REQUIRE_THROWS_AS(optimizer.state_dict(3), c10::ValueError);
  net->to(torch::kDouble);
  net->zero_grad();
  REQUIRE_THROWS_WITH(optimizer.step(), Has("was moved or replaced"));
}

} // namespace ddp::test::zero_redundancy_failures_test
