// Sharded optimizers of more kinds of parameters, and over parts of the ranks.
#include <tests/support/sharded.h>

#include <ddp/ddp.h>

namespace ddp::test::zero_redundancy_groups_test {

using torch::optim::AdamOptions;
using torch::optim::OptimizerParamGroup;
using Groups = std::vector<OptimizerParamGroup>;

/// A net and its training options.
template <typename Net>
struct Training {
  std::function<Groups(Net&)> groups = [](Net& net) {
    return Groups{OptimizerParamGroup(net.parameters())};
  };
  std::function<void(Net&, int64_t step)> before_step = [](Net&, int64_t) {};
  int64_t steps = 6;
};

template <typename Net>
std::shared_ptr<Net> same_net() {
  torch::manual_seed(3);
  return std::make_shared<Net>();
}

/// Trains two nets, one with the optimizer itself.
template <typename Net>
void check_bits(const ProcessGroup& group, const Training<Net>& with) {
  const AdamOptions options(1e-2);
  for (const bool views : {false, true}) {
    const auto plain = same_net<Net>();
    const auto sharded = same_net<Net>();
    Reducer plain_reducer(plain, group);
    Reducer reducer(sharded, group);
    torch::optim::Adam expected(with.groups(*plain), options);
    Zero<torch::optim::Adam> optimizer(
        with.groups(*sharded),
        group,
        options,
        ZeroRedundancyOptions().parameters_as_bucket_view(views));
    for (int64_t step = 0; step < with.steps; ++step) {
      for (const auto& net : {plain, sharded}) {
        net->zero_grad();
        with.before_step(*net, step);
        net->forward(batch(group, step, 7)).pow(2).mean().backward();
      }
      expected.step();
      optimizer.step();
      INFO("step " << step << ", views: " << views);
      REQUIRE(same_parameters(*sharded, *plain));
      REQUIRE(equal_on_all(group, *sharded));
    }
    REQUIRE(optimizer.state().size() < expected.state().size());
  }
}

RANKS_TEST("a part of the ranks shards its own optimizer", 4) {
  Training<UnevenNet> training;
  training.steps = group.rank() < 2 ? 2 : 5; // a common group hangs
  check_bits(group.split(group.rank() / 2), training);
  group.barrier(); // rank 0 serves the store of both parts
}

RANKS_TEST("groups of a sharded optimizer have options of their own") {
  Training<UnevenNet> training;
  training.groups = [](UnevenNet& net) {
    Groups groups;
    groups.emplace_back(
        net.first->parameters(),
        std::make_unique<AdamOptions>(AdamOptions(1e-1).weight_decay(0.1)));
    groups.emplace_back(
        net.wide->parameters(),
        std::make_unique<AdamOptions>(AdamOptions(1e-3).amsgrad(true)));
    groups.emplace_back(net.last->parameters());
    return groups;
  };
  check_bits(group, training);
}

/// Parameters in single and in double precision.
struct MixedNet : LayeredNet {
  torch::nn::Linear first = linear("first", 7, 33);
  torch::nn::Linear wide = linear("wide", 33, 65);
  torch::nn::Linear last = linear("last", 65, 3);

  MixedNet() {
    wide->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = wide(torch::relu(first(x)).to(torch::kDouble));
    return last(torch::relu(y).to(torch::kFloat));
  }
};

RANKS_TEST("parameters of several dtypes are sharded") {
  check_bits(group, Training<MixedNet>());
}

RANKS_TEST("a parameter that is frozen for some steps is left as it is") {
  Training<UnevenNet> training;
  training.before_step = [](UnevenNet& net, int64_t step) {
    net.wide->weight.set_requires_grad(step < 2 || step > 3);
    net.first->bias.set_requires_grad(step != 4);
  };
  check_bits(group, training);
}

} // namespace ddp::test::zero_redundancy_groups_test
