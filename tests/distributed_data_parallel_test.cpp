#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/distributed_data_parallel.h>

using ddp::DistributedDataParallel;
using ddp::ProcessGroup;
using ddp::test::BranchNet;
using ddp::test::ranks;

namespace {

struct NormNetImpl : torch::nn::Module {
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  NormNetImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
  }
  std::pair<torch::Tensor, int> forward(const torch::Tensor& x, int tag = 5) {
    return {norm(linear(x)), tag};
  }
};
TORCH_MODULE(NormNet);

torch::Tensor mine(const ProcessGroup& group) {
  torch::manual_seed(group.rank());
  return torch::randn({8, 3});
}

bool equal_on_all(const ProcessGroup& group, const torch::Tensor& tensor) {
  for (const auto& other : group.all_gather(tensor)) {
    if (!other.equal(tensor)) {
      return false;
    }
  }
  return true;
}

} // namespace

TEST_CASE("forward takes and returns what the module's does") {
  ranks(3, [](ProcessGroup group) {
    NormNet net;
    DistributedDataParallel<NormNet> model(net, group);
    const auto [output, tag] = model->forward(mine(group));
    REQUIRE(tag == 5);
    REQUIRE(model->forward(mine(group), 7).second == 7);
    output.sum().backward();
    REQUIRE(equal_on_all(group, net->linear->weight.grad()));
    auto plain = std::make_shared<BranchNet>();
    DistributedDataParallel<BranchNet> branch(plain, group);
    branch->forward(torch::ones({1, 4}), true).sum().backward();
    REQUIRE(branch->module() == plain);
  });
}

TEST_CASE("names begin with module.") {
  const ProcessGroup alone;
  DistributedDataParallel<NormNet> model(NormNet(), alone);
  REQUIRE(model->named_parameters().contains("module.linear.weight"));
  REQUIRE(model->named_buffers().contains("module.norm.running_mean"));
  REQUIRE(model->module()->named_parameters().contains("linear.weight"));
}

TEST_CASE("buffers follow rank 0's before a forward that will be trained on") {
  ranks(3, [](ProcessGroup group) {
    NormNet net;
    DistributedDataParallel<NormNet> model(net, group);
    const auto& mean = net->norm->running_mean;
    REQUIRE(equal_on_all(group, mean));
    model->forward(mine(group));
    REQUIRE(!equal_on_all(group, mean)); // each saw its own batch
    const auto first = group.all_gather(mean)[0];
    net->eval(); // so that the next forward leaves the buffers as they are
    model->forward(mine(group));
    REQUIRE(mean.equal(first));
  });
}

TEST_CASE("without gradients to follow, forward does not communicate") {
  ranks(3, [](ProcessGroup group) {
    NormNet net;
    DistributedDataParallel<NormNet> model(net, group);
    model->forward(mine(group)).first.sum().backward();
    if (group.rank() == 0) { // the others do not take part: it must not wait
      torch::NoGradGuard no_grad;
      model->forward(mine(group));
    }
    if (group.rank() == 1) {
      const auto guard = model->no_sync();
      model->forward(mine(group));
    }
    group.barrier();
  });
}

TEST_CASE("two forwards with batch-norm may precede one backward") {
  ranks(3, [](ProcessGroup group) {
    NormNet net;
    DistributedDataParallel<NormNet> model(net, group);
    for (int step = 0; step < 2; ++step) {
      const auto a = model->forward(mine(group)).first;
      const auto b = model->forward(mine(group) + 1).first;
      (a.pow(2).sum() + b.pow(3).sum()).backward();
      REQUIRE(equal_on_all(group, net->linear->weight.grad()));
    }
  });
}

TEST_CASE("broadcast_buffers(false) leaves buffers to each rank") {
  ranks(3, [](ProcessGroup group) {
    NormNet net;
    DistributedDataParallel<NormNet> model(
        net, group, ddp::ReducerOptions().broadcast_buffers(false));
    model->forward(mine(group));
    net->eval();
    model->forward(mine(group));
    REQUIRE(!equal_on_all(group, net->norm->running_mean));
  });
}
