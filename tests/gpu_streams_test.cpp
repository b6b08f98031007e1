// Needs CUDA's headers: not part of builds without.

#include <tests/support/gpus.h>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <ddp/distributed_data_parallel.h>
#include <ddp/optimizers.h>

namespace ddp::test::gpu_streams_test {

at::Tensor loss_of(UnevenNet& net, const at::Tensor& input) {
  return net.forward(input).pow(2).mean();
}

/// Makes LibTorch throw where this process waits for a GPU.
class WaitsAreErrors {
 public:
  WaitsAreErrors() {
    c10::cuda::warning_state().set_sync_debug_mode(
        c10::cuda::SyncDebugMode::L_ERROR);
  }
  ~WaitsAreErrors() {
    c10::cuda::warning_state().set_sync_debug_mode(
        c10::cuda::SyncDebugMode::L_DISABLED);
  }
};

GPU_TEST("a step that uses each parameter does not wait for the GPU", 2) {
  auto net = net_on_gpu(group);
  DistributedDataParallel<UnevenNet> model(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 6; ++step) {
    const auto input = input_of(group, step).to(group.device());
    std::optional<WaitsAreErrors> forbidden;
    if (step >= 3) {
      forbidden.emplace();
    }
    optimizer.zero_grad();
    model->forward(input).pow(2).mean().backward();
    optimizer.step();
  }
}

GPU_TEST("a step that is replayed as a CUDA graph gives the same bits", 2) {
  auto net = net_on_gpu(group);
  auto eager = net_on_gpu(group);
  Reducer reducer(net, group, ReducerOptions().record(true));
  Reducer eager_reducer(eager, group);
  const auto input = input_of(group, 0).to(group.device());
  const auto side = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(side);
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    loss_of(*net, input).backward();
  }
  net->zero_grad();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  loss_of(*net, input).backward();
  graph.capture_end();
  for (int step = 1; step < 6; ++step) {
    input.copy_(input_of(group, step).to(group.device()));
    graph.replay();
    eager->zero_grad();
    loss_of(*eager, input).backward();
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      REQUIRE(torch::equal(
          net->parameters()[i].grad(), eager->parameters()[i].grad()));
    }
  }
}

/// The text of the error of work that is captured; empty if there is none.
template <typename Work>
std::string error_of_captured(Work&& work) {
  at::cuda::CUDAGraph graph;
  std::string text;
  try {
    graph.capture_begin();
    work();
  } catch (const std::exception& error) {
    text = error.what();
  }
  try {
    graph.capture_end();
  } catch (const std::exception&) { // of a capture that failed
  }
  return text;
}

std::string error_in_capture(const at::Tensor& parameter) {
  return error_of_captured([&] { (parameter * 2).sum().backward(); });
}

GPU_TEST("a capture that does not reach a parameter is refused", 2) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  auto net = net_on_gpu(group);
  Reducer reducer(net, group);
  const auto input = input_of(group, 0).to(group.device());
  for (int step = 0; step < 3; ++step) {
    loss_of(*net, input).backward();
  }
  REQUIRE_THAT(
      error_in_capture(net->parameters().front()),
      Has("backward did not reach"));
}

GPU_TEST("a fused step that counts on the host is not captured", 2) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  auto weight = torch::ones({8}, group.device()).requires_grad_();
  weight.mutable_grad() = torch::ones({8}, group.device());
  const std::vector<torch::Tensor> parameters{weight};
  FusedAdamW adam(parameters);
  adam.step();
  REQUIRE_THAT(
      error_of_captured([&] { adam.step(); }),
      Has("the number of steps before"));
  FusedSGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  REQUIRE_THAT(
      error_of_captured([&] { sgd.step(); }),
      Has("first step of a fused optimizer"));
  sgd.step();
  REQUIRE(error_of_captured([&] { sgd.step(); }).empty());
}

GPU_TEST("sparse gradients are complete on a stream of the program's") {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  torch::manual_seed(1);
  torch::nn::Embedding table(
      torch::nn::EmbeddingOptions(20000, 64).sparse(true));
  table->to(group.device());
  const Reducer reducer(table.ptr(), group);
  const auto rows = torch::arange(20000).to(group.device());
  for (int step = 0; step < 10; ++step) {
    table->weight.mutable_grad().reset();
    (table->forward(rows).sum() * (group.rank() + 1.0)).backward();
    const auto mean = table->weight.grad().to_dense();
    INFO("step " << step);
    REQUIRE(torch::equal(mean, torch::full_like(mean, 2)));
  }
}

} // namespace ddp::test::gpu_streams_test
