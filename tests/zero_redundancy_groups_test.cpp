// Sharded optimizers of more kinds of parameters, and over parts of the ranks.
#include <tests/support/sharded.h>

#include <ddp/ddp.h>

namespace ddp::test::zero_redundancy_groups_test {

using torch::optim::Adam;
using torch::optim::AdamOptions;

RANKS_TEST("a part of the ranks shards its own optimizer", 4) {
  ShardedTraining<UnevenNet> training;
  training.steps = group.rank() < 2 ? 2 : 5; // a common group hangs
  check_bits<Adam>(group.split(group.rank() / 2), AdamOptions(1e-2), training);
  group.barrier(); // rank 0 serves the store of both parts
}

RANKS_TEST("groups of a sharded optimizer have options of their own") {
  ShardedTraining<UnevenNet> training;
  training.groups = [](UnevenNet& net) {
    ShardedTraining<UnevenNet>::Groups groups;
    groups.emplace_back(
        net.first->parameters(),
        std::make_unique<AdamOptions>(AdamOptions(1e-1).weight_decay(0.1)));
    groups.emplace_back(
        net.wide->parameters(),
        std::make_unique<AdamOptions>(AdamOptions(1e-3).amsgrad(true)));
    groups.emplace_back(net.last->parameters());
    return groups;
  };
  check_bits<Adam>(group, AdamOptions(1e-2), training);
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
  check_bits<Adam>(group, AdamOptions(1e-2), ShardedTraining<MixedNet>());
}

RANKS_TEST("a parameter that is frozen for some steps is left as it is") {
  ShardedTraining<UnevenNet> training;
  training.before_step = [](UnevenNet& net, int64_t step) {
    net.wide->weight.set_requires_grad(step < 2 || step > 3);
    net.first->bias.set_requires_grad(step != 4);
  };
  check_bits<Adam>(group, AdamOptions(1e-2), training);
}

} // namespace ddp::test::zero_redundancy_groups_test
