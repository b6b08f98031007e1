#pragma once

// Models and a training for tests of sharded optimizers.
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/join.h>
#include <ddp/reducer.h>
#include <ddp/zero_redundancy_optimizer.h>

namespace ddp::test {

template <typename Optimizer>
using Zero = ZeroRedundancyOptimizer<Optimizer>;

/// A net with the same values on all ranks.
template <typename Net = UnevenNet>
std::shared_ptr<Net> start_net() {
  torch::manual_seed(3);
  return std::make_shared<Net>();
}

/// How `check_bits` trains a net.
template <typename Net>
struct ShardedTraining {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  std::function<Groups(Net&)> groups = [](Net& net) {
    return Groups{torch::optim::OptimizerParamGroup(net.parameters())};
  };
  std::function<void(Net&, int64_t step)> before_step = [](Net&, int64_t) {};
  int64_t steps = 6;
};

/// Trains two nets on the group's device, one with the optimizer itself.
template <typename Optimizer, typename Options, typename Net = UnevenNet>
void check_bits(
    const ProcessGroup& group,
    const Options& options,
    const ShardedTraining<Net>& with = ShardedTraining<Net>()) {
  for (const bool views : {false, true}) {
    const auto plain = start_net<Net>();
    const auto sharded = start_net<Net>();
    plain->to(group.device());
    sharded->to(group.device());
    const auto reuse = ReducerOptions().share_communicator(true);
    Reducer plain_reducer(plain, group, reuse);
    Reducer reducer(sharded, group, reuse);
    Optimizer expected(with.groups(*plain), options);
    Zero<Optimizer> optimizer(
        with.groups(*sharded),
        group,
        options,
        ZeroRedundancyOptions().parameters_as_bucket_view(views));
    torch::optim::StepLR plain_schedule(expected, 2, 0.5);
    torch::optim::StepLR schedule(optimizer, 2, 0.5);
    for (int64_t step = 0; step < with.steps; ++step) {
      for (const auto& net : {plain, sharded}) {
        net->zero_grad();
        with.before_step(*net, step);
        const auto input = batch(group, step, 7).to(group.device());
        net->forward(input).pow(2).mean().backward();
      }
      expected.step();
      optimizer.step();
      plain_schedule.step();
      schedule.step();
      INFO("step " << step << ", views: " << views);
      REQUIRE(same_parameters(*sharded, *plain));
      REQUIRE(equal_on_all(group, *sharded));
    }
    const auto own =
        torch::tensor({static_cast<int64_t>(optimizer.state().size())});
    auto all = own.clone();
    group.all_reduce(all);
    REQUIRE(
        all.item<int64_t>() == static_cast<int64_t>(expected.state().size()));
    REQUIRE(own.item<int64_t>() < all.item<int64_t>());
  }
}

/// Trains with a sharded optimizer in a join, and returns the net.
inline std::shared_ptr<UnevenNet> join_with_shards(const ProcessGroup& group) {
  const auto net = start_net();
  net->to(group.device());
  Reducer reducer(net, group);
  Zero<torch::optim::Adam> optimizer(
      net->parameters(), group, torch::optim::AdamOptions(1e-2));
  Join join(group, {reducer.joinable(), optimizer});
  for (int64_t step = 0; step < 1 + 2 * group.rank(); ++step) {
    net->zero_grad();
    const auto input = batch(group, step, 7).to(group.device());
    net->forward(input).pow(2).mean().backward();
    optimizer.step();
  }
  return net;
}

/// Parameters of ones with these sizes, whose gradients are ones.
inline std::vector<torch::Tensor> with_gradients(
    const std::vector<int64_t>& sizes) {
  std::vector<torch::Tensor> parameters;
  for (const auto size : sizes) {
    parameters.push_back(torch::ones({size}).requires_grad_());
    parameters.back().mutable_grad() = torch::ones({size});
  }
  return parameters;
}

} // namespace ddp::test
