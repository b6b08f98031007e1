#include <tests/support/catch.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>

#include <ddp/reducer.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

using ddp::ProcessGroup;
using ddp::Reducer;
using ddp::ReducerOptions;
using ddp::test::batch;
using ddp::test::copy_parameters;
using ddp::test::ranks;
using ddp::test::UnevenNet;

namespace {

/// LibTorch's own Reducer, set up as Python's DistributedDataParallel does.
std::unique_ptr<c10d::Reducer> c10d_reducer(
    const torch::nn::Module& net,
    const ProcessGroup& group,
    int64_t first_cap,
    int64_t cap) {
  const auto parameters = net.parameters();
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      parameters, {std::numeric_limits<size_t>::max()});
  std::reverse(buckets.begin(), buckets.end());
  return std::make_unique<c10d::Reducer>(
      parameters,
      buckets,
      group.c10d(),
      std::vector<bool>(parameters.size(), false),
      cap,
      false,
      false,
      std::unordered_map<size_t, std::string>(),
      first_cap,
      false,
      false,
      std::vector<int64_t>());
}

void compare_with_c10d(
    ProcessGroup group,
    const ReducerOptions& options,
    int64_t first_cap,
    int64_t cap,
    bool set_to_none) {
  torch::manual_seed(7);
  auto net = std::make_shared<UnevenNet>();
  auto oracle_net = std::make_shared<UnevenNet>();
  Reducer reducer(net, group, options);
  copy_parameters(*net, *oracle_net);
  const auto oracle =
      c10d_reducer(*oracle_net, group.duplicate(), first_cap, cap);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::optim::SGD oracle_optimizer(oracle_net->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    const auto input = batch(group, step, 7);
    optimizer.zero_grad(set_to_none);
    net->forward(input).pow(2).mean().backward();
    oracle_optimizer.zero_grad(set_to_none);
    oracle->prepare_for_forward();
    oracle->rebuild_buckets();
    const auto loss = oracle_net->forward(input).pow(2).mean();
    oracle->prepare_for_backward({});
    loss.backward();
    const auto expected = oracle_net->parameters();
    const auto actual = net->parameters();
    for (size_t i = 0; i < actual.size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      REQUIRE(actual[i].grad().equal(expected[i].grad()));
    }
    optimizer.step();
    oracle_optimizer.step();
  }
}

} // namespace

TEST_CASE("gradients equal c10d's bit for bit, in each step") {
  // With two ranks every order of addition gives the same bits: three and four.
  for (const int size : {3, 4}) {
    ranks(size, [](ProcessGroup group) {
      compare_with_c10d(group, {}, 1 << 20, 25 << 20, true);
      compare_with_c10d(group, {}, 1 << 20, 25 << 20, false);
      const int64_t small = static_cast<int64_t>(0.01 * (1 << 20));
      compare_with_c10d(
          group, ReducerOptions().bucket_cap_mb(0.01), small, small, true);
    });
  }
}
