// Optimizers with sharded state.
#include <tests/support/failures.h>
#include <tests/support/sharded.h>

#include <ddp/amp.h>
#include <ddp/ddp.h>

#include <sys/resource.h>

namespace ddp::test::zero_redundancy_optimizer_test {

using torch::optim::OptimizerParamGroup;

void backward(UnevenNet& net, const ProcessGroup& group, int64_t step) {
  net.zero_grad();
  net.forward(batch(group, step, 7)).pow(2).mean().backward();
}

int64_t bytes_of_state(const torch::optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& item : optimizer.state()) {
    const auto& state =
        static_cast<const torch::optim::AdamParamState&>(*item.second);
    bytes += static_cast<int64_t>(
        state.exp_avg().nbytes() + state.exp_avg_sq().nbytes());
  }
  return bytes;
}

RANKS_TEST("a sharded optimizer has the bits of the optimizer itself", {3, 4}) {
  check_bits<torch::optim::Adam>(
      group, torch::optim::AdamOptions(1e-2).amsgrad(true));
  check_bits<torch::optim::AdamW>(group, torch::optim::AdamWOptions(1e-2));
  check_bits<torch::optim::SGD>(
      group, torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
  check_bits<torch::optim::RMSprop>(group, torch::optim::RMSpropOptions(1e-3));
  check_bits<torch::optim::Adagrad>(group, torch::optim::AdagradOptions(1e-2));
  check_bits<FusedAdam>(group, torch::optim::AdamOptions(1e-2));
}

RANKS_TEST("the largest parameters go to the ranks that have least") {
  const auto parameters = with_gradients({10, 50, 20, 40, 30});
  Zero<torch::optim::Adam> optimizer(
      parameters, group, torch::optim::AdamOptions(1.0));
  optimizer.step();
  // 50; 40 and 10; 30 and 20.
  const std::vector<int64_t> loads = {50, 50, 50};
  REQUIRE(
      bytes_of_state(optimizer) ==
      2 * 4 * loads[static_cast<size_t>(group.rank())]);
  REQUIRE(optimizer.state().size() == (group.rank() == 0 ? 1 : 2));
  // A parameter group that is added later is sharded too.
  const auto late = with_gradients({7})[0];
  OptimizerParamGroup group_of_one({late});
  group_of_one.set_options(std::make_unique<torch::optim::AdamOptions>(0.5));
  optimizer.add_param_group(group_of_one);
  optimizer.step();
  for (const auto& parameter : parameters) {
    REQUIRE(parameter.allclose(torch::full_like(parameter, -1), 1e-4));
  }
  REQUIRE(late.allclose(torch::full({7}, 0.5), 1e-4));
}

RANKS_TEST("ranks without inputs step their parameters along") {
  const auto net = join_with_shards(group);
  const auto plain = start_net();
  Reducer reducer(plain, group);
  torch::optim::Adam optimizer(
      plain->parameters(), torch::optim::AdamOptions(1e-2));
  reducer.step_in_backward(optimizer);
  {
    auto join = reducer.join();
    for (int64_t step = 0; step < 1 + 2 * group.rank(); ++step) {
      backward(*plain, group, step);
    }
  }
  REQUIRE(same_parameters(*net, *plain));
}

/// Trains with a scaled loss, clipped gradients and a rate that changes in each
/// step.
void train_unevenly(
    UnevenNet& net,
    Reducer& reducer,
    torch::optim::Optimizer& optimizer,
    const ProcessGroup& group) {
  GradScaler scaler;
  torch::optim::StepLR schedule(optimizer, 1, 0.5);
  for (int64_t step = 0; step < 1 + 2 * group.rank(); ++step) {
    optimizer.zero_grad();
    const auto loss = net.forward(batch(group, step, 7)).pow(2).mean();
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    reducer.clip_grad_norm(0.1);
    scaler.step(optimizer);
    scaler.update();
    schedule.step();
  }
}

RANKS_TEST("ranks without inputs step with the gradients of the others") {
  const torch::optim::SGDOptions options(0.1);
  const auto plain = start_net();
  {
    Reducer reducer(plain, group);
    torch::optim::SGD optimizer(plain->parameters(), options);
    auto join = reducer.join();
    train_unevenly(*plain, reducer, optimizer, group);
  }
  for (const auto& sharding : {group, group.split(group.rank() / 2)}) {
    const auto net = start_net();
    {
      Reducer reducer(net, group);
      Zero<torch::optim::SGD> optimizer(net->parameters(), sharding, options);
      Join join(group, {reducer.joinable(), optimizer});
      train_unevenly(*net, reducer, optimizer, group);
    }
    REQUIRE(same_parameters(*net, *plain));
  }
}

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

/// By how much the peak grows over two steps of Adam, for each byte of
/// parameters.
template <typename Optimizer>
double growth(
    Optimizer& optimizer,
    const std::vector<torch::Tensor>& parameters) {
  int64_t bytes = 0;
  for (const auto& parameter : parameters) {
    bytes += static_cast<int64_t>(parameter.nbytes());
  }
  const auto before = peak_memory();
  optimizer.step();
  optimizer.step();
  return static_cast<double>(peak_memory() - before) /
      static_cast<double>(bytes);
}

std::vector<torch::Tensor> large_parameters() {
  return with_gradients(std::vector<int64_t>(16, 1 << 20));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers use another allocator.
TEST_CASE("a sharded state takes a rank's share of the memory") {
  const torch::optim::AdamOptions options(1e-2);
  ranks(1, [&](ProcessGroup) { // a new process: its peak is low
    const auto parameters = large_parameters();
    torch::optim::Adam optimizer(parameters, options);
    const auto unsharded = growth(optimizer, parameters);
    REQUIRE(unsharded > 1.9);
  });
  ranks(4, [&](ProcessGroup group) {
    const auto parameters = large_parameters();
    Zero<torch::optim::Adam> optimizer(
        parameters,
        group,
        options,
        ZeroRedundancyOptions().parameters_as_bucket_view(true));
    const auto sharded = growth(optimizer, parameters);
    REQUIRE(sharded < 2.0 / 4 + 0.35); // and Adam's temporaries
  });
}
#endif

TEST_CASE("a group of one is not sharded") {
  const auto net = start_net();
  const auto plain = start_net();
  Zero<torch::optim::Adam> optimizer(
      net->parameters(), ProcessGroup(), torch::optim::AdamOptions(1e-2));
  torch::optim::Adam expected(
      plain->parameters(), torch::optim::AdamOptions(1e-2));
  net->forward(torch::ones({2, 7})).sum().backward();
  plain->forward(torch::ones({2, 7})).sum().backward();
  optimizer.step();
  expected.step();
  REQUIRE(same_parameters(*net, *plain));
  const auto state = optimizer.state_dict().toGenericDict();
  CHECK(state.at("state").toGenericDict().size() == 6);
}

/// A step by a closure, which clears the gradients first.
void step_by_closure(
    torch::optim::Optimizer& optimizer,
    UnevenNet& net,
    const ProcessGroup& group,
    int64_t step) {
  optimizer.step([&] {
    optimizer.zero_grad();
    const auto loss = net.forward(batch(group, step, 7)).pow(2).mean();
    loss.backward();
    return loss;
  });
}

RANKS_TEST("a closure sees all parameters of a sharded optimizer") {
  const auto net = start_net();
  const auto plain = start_net();
  Reducer reducer(net, group);
  Reducer plain_reducer(plain, group);
  const torch::optim::SGDOptions options(0.1);
  Zero<torch::optim::SGD> optimizer(net->parameters(), group, options);
  torch::optim::SGD expected(plain->parameters(), options);
  for (int64_t step = 0; step < 3; ++step) {
    step_by_closure(optimizer, *net, group, step);
    step_by_closure(expected, *plain, group, step);
    REQUIRE(same_parameters(*net, *plain));
  }
  // Ranks without inputs step too.
  Join join(group, {reducer.joinable(), optimizer});
  for (int64_t step = 0; step <= group.rank(); ++step) {
    step_by_closure(optimizer, *net, group, step);
  }
}

} // namespace ddp::test::zero_redundancy_optimizer_test
