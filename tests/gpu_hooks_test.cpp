// Communication hooks, uneven inputs and DDP_DEBUG on GPUs.

#include <tests/support/comm_hooks.h>
#include <tests/support/gpus.h>
#include <tests/support/hook_training.h>
#include <tests/support/twins.h>

#include <ddp/ddp.h>

namespace ddp::test::gpu_hooks_test {

using namespace torch::nn;

GPU_TEST("the library's communication hooks average over NCCL") {
  const auto quantized = QuantizationOptions().channel_size(64);
  check_mean(group, fp16_compress_hook(), 1e-2);
  check_mean(group, bf16_compress_hook(), 6e-2);
  check_mean(group, std::make_shared<QuantizationHook>(quantized), 6e-2);
  const auto chain =
      chain_of({times(4), std::make_shared<AllReduceHook>(), times(0.5)});
  check_mean(group, chain, 1e-5, 2);
  check_mean(group, bf16_compress_hook(chain), 1e-1, 2);
}

GPU_TEST("PowerSGD over NCCL averages matrices of low rank exactly") {
  const auto hook = std::make_shared<PowerSGDHook>(
      PowerSGDOptions().start_iteration(2).matrix_approximation_rank(2));
  const auto options = torch::TensorOptions(group.device());
  auto weight = torch::zeros({30, 20}, options).requires_grad_();
  auto bias = torch::zeros({30}, options).requires_grad_();
  const Reducer reducer({weight, bias}, group, hook_options(hook));
  torch::manual_seed(1);
  const auto low = torch::randn({30, 2}).mm(torch::randn({2, 20}));
  const auto product = low.to(group.device());
  const auto largest = product.abs().max();
  for (int step = 0; step < 6; ++step) {
    weight.mutable_grad().reset();
    bias.mutable_grad().reset();
    const double own = 1.0 + group.rank() + step;
    ((weight * product * own).sum() + (bias * own).sum()).backward();
    const double mean = 2.0 + step;
    const auto error = (weight.grad() / mean - product).abs().max() / largest;
    INFO("step " << step << ", error " << error.item<double>());
    REQUIRE(error.item<double>() < 1e-4);
    REQUIRE(is(bias.grad(), mean));
    REQUIRE(equal_on_all(group, weight.grad()));
  }
  REQUIRE(hook->compression_rate() > 2);
}

GPU_TEST("gradients of uneven inputs on GPUs are divided as was asked for") {
  for (const bool by_initial : {true, false}) {
    const auto options = torch::TensorOptions(group.device());
    auto weight = torch::zeros({5}, options).requires_grad_();
    Reducer reducer({weight}, group, shared());
    torch::optim::SGD optimizer({weight}, /*lr=*/1.);
    at::Tensor last;
    {
      auto join =
          reducer.join(JoinOptions().divide_by_initial_world_size(by_initial));
      for (int64_t step = 0; step <= group.rank(); ++step) {
        optimizer.zero_grad();
        (weight * (group.rank() + 1.0)).sum().backward();
        double sum = 0; // of the ranks that still have inputs
        for (int64_t rank = step; rank < 3; ++rank) {
          sum += rank + 1.0;
        }
        INFO("step " << step << ", by the initial size " << by_initial);
        REQUIRE(is(weight.grad(), sum / (by_initial ? 3.0 : 3.0 - step)));
        optimizer.step();
      }
      last = weight.detach().clone();
    }
    REQUIRE(weight.detach().equal(group.all_gather(last)[2]));
  }
}

GPU_TEST("a wrapper on GPUs ends a join with the state of the last rank") {
  const auto net = net_on_gpu<NormNet>(group, 7, 12, 3);
  DistributedDataParallel<NormNet> model(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  at::Tensor mean;
  {
    auto join = model->join();
    for (int64_t step = 0; step < 4 - group.rank(); ++step) {
      optimizer.zero_grad();
      model->forward(input_of(group, step)).pow(2).mean().backward();
      optimizer.step();
    }
    mean = net->norm->running_mean.clone();
  }
  REQUIRE(equal_on_all(group, *net));
  REQUIRE(net->norm->running_mean.equal(group.all_gather(mean)[0]));
  REQUIRE(net->norm->num_batches_tracked.item<int64_t>() == 4);
}

TEST_CASE("DDP_DEBUG=detail on GPUs compares calls and lets training go on") {
  const SharedFolder folder;
  setenv("DDP_DEBUG", "detail", /*overwrite=*/1);
  setenv("DDP_DEBUG_FOLDER", folder.path.c_str(), /*overwrite=*/1);
  const auto outcomes = gpu_ranks(2, [](ProcessGroup group) {
    const auto net = net_on_gpu(group);
    const auto local = net_on_gpu(group);
    DistributedDataParallel<UnevenNet> model(net, group);
    for (int step = 0; step < 4; ++step) {
      const auto input = input_of(group, step).to(group.device());
      net->zero_grad();
      local->zero_grad();
      model->forward(input).pow(2).mean().backward();
      local->forward(input).pow(2).mean().backward();
      require_means(group, *net, *local, 0, 0);
    }
    const std::vector<int64_t> sizes = {2 + group.rank(), 3};
    const auto differing = torch::ones(sizes, group.device());
    REQUIRE_THROWS_WITH(
        group.all_reduce(differing), Has("calls differ at collective"));
  });
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto path = folder.path + "rank_" + std::to_string(rank) + ".json";
    REQUIRE_THAT(read_text(path), Has("all_reduce", "nccl"));
  }
}

} // namespace ddp::test::gpu_hooks_test
