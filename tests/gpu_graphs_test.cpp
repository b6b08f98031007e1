// Memory on GPUs, and CUDA graphs of training steps. Needs CUDA's headers, so
// builds without CUDA do not contain it.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <common/heartbeat_page.h>
#include <ddp/ddp.h>
#include <tests/support/failures.h>
#include <tests/support/gpus.h>
#include <tests/support/shared_page.h>

namespace ddp::test::gpu_graphs_test {

using namespace torch::nn;

/// Tensors that are alive on the GPU, and their bytes.
std::pair<int64_t, int64_t> memory_of(const ProcessGroup& group) {
  c10::cuda::device_synchronize();
  // NCCL's watchdog releases completed work a moment later.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(group.device().index());
  constexpr auto kAll =
      static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {
      stats.allocation.at(kAll).current,
      stats.requested_bytes.at(kAll).current};
}

GPU_TEST("steps on GPUs take no more memory as they go on", 2) {
  const auto net = net_on_gpu<NormNet>(group, 7, 300, 3);
  auto rare = Linear(7, 50);
  net->register_module("rare", rare);
  rare->to(group.device());
  DistributedDataParallel<NormNet> model(net, group);
  FusedAdam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  const auto train = [&](int begin, int end) {
    for (int step = begin; step < end; ++step) {
      const auto input = input_of(group, step);
      optimizer.zero_grad();
      auto loss = model->forward(input).pow(2).mean();
      if (step % 3 != 0) { // else no rank uses it
        loss = loss + rare(input.to(group.device())).pow(2).mean();
      }
      loss.backward();
      model->reducer().clip_grad_norm(1.);
      optimizer.step();
    }
  };
  train(0, 5);
  const auto [tensors, bytes] = memory_of(group);
  train(5, 20); // the last step is like the 5th
  const auto [tensors_later, bytes_later] = memory_of(group);
  REQUIRE(tensors_later <= tensors);
  REQUIRE(bytes_later <= bytes);
}

GPU_TEST("a wrapper with buffers is replayed as a CUDA graph", 2) {
  const auto net = net_on_gpu<NormNet>(group, 7, 300, 3);
  const auto eager_net = net_on_gpu<NormNet>(group, 7, 300, 3);
  DistributedDataParallel<NormNet> model(net, group);
  DistributedDataParallel<NormNet> eager(eager_net, group);
  const auto momentum = torch::optim::SGDOptions(0.1).momentum(0.9);
  FusedSGD optimizer(net->parameters(), momentum);
  FusedSGD eager_optimizer(eager_net->parameters(), momentum);
  const auto input = input_of(group, 0).to(group.device());
  const auto train = [&](auto& trained, auto& its_optimizer) {
    trained->zero_grad();
    trained->forward(input).pow(2).mean().backward();
    trained->reducer().clip_grad_norm(0.1);
    its_optimizer.step();
  };
  c10::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  for (int step = 0; step < 3; ++step) {
    train(model, optimizer);
    train(eager, eager_optimizer);
  }
  at::cuda::CUDAGraph graph;
  model->zero_grad();
  graph.capture_begin();
  train(model, optimizer);
  graph.capture_end();
  for (int step = 1; step < 6; ++step) {
    input.copy_(input_of(group, step).to(group.device()));
    graph.replay();
    train(eager, eager_optimizer);
    INFO("step " << step);
    const auto tensors = [](const NormNet& from) {
      auto all = from.parameters();
      const auto buffers = from.buffers();
      all.insert(all.end(), buffers.begin(), buffers.end());
      return all;
    };
    for (size_t i = 0; i < tensors(*net).size(); ++i) {
      INFO("tensor " << i);
      REQUIRE(tensors(*net)[i].allclose(tensors(*eager_net)[i], 1e-5, 1e-6));
    }
  }
  REQUIRE(net->norm->num_batches_tracked.item<int64_t>() == 8);
  // All ranks used rank 0's statistics from before the last forward.
  auto& mean = net->norm->running_mean;
  mean.fill_(100. * group.rank());
  graph.replay();
  REQUIRE(mean.abs().max().item<double>() < 50);
}

GPU_TEST("a net with a synchronised batch-norm is replayed as a CUDA graph") {
  const auto net = net_on_gpu<NormNet>(group, 7, 300, 3);
  const auto eager = net_on_gpu<NormNet>(group, 7, 300, 3);
  convert_sync_batchnorm(net, group);
  convert_sync_batchnorm(eager, group);
  const Reducer reducer(net, group, shared());
  const Reducer eager_reducer(eager, group, shared());
  const auto input = input_of(group, 0).to(group.device());
  const auto train = [&](NormNet& trained) {
    trained.zero_grad();
    trained.forward(input).pow(2).mean().backward();
  };
  c10::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  for (int step = 0; step < 3; ++step) {
    train(*net);
    train(*eager);
  }
  net->zero_grad();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  train(*net);
  graph.capture_end();
  for (int step = 1; step < 4; ++step) {
    input.copy_(input_of(group, step).to(group.device()));
    graph.replay();
    train(*eager);
    INFO("step " << step);
    REQUIRE(net->norm->running_var.allclose(eager->norm->running_var));
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      INFO("parameter " << i);
      REQUIRE(net->parameters()[i].grad().allclose(
          eager->parameters()[i].grad(), 1e-4, 1e-6));
    }
  }
}

/// Captures work. Returns the text of its error, which is empty if there is
/// none.
template <typename Work>
std::string capture(at::cuda::CUDAGraph& graph, Work&& work) {
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

/// A Reducer's step, captured on a separate stream and replayed.
struct Captured {
  explicit Captured(const ProcessGroup& group, int steps_before = 3)
      : net(net_on_gpu(group)),
        reducer(std::in_place, net, group),
        input(input_of(group, 0).to(group.device())),
        graph(std::in_place) {
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    for (int step = 0; step < steps_before; ++step) {
      train();
    }
    net->zero_grad();
    refusal = capture(*graph, [this] { train(); });
    if (refusal.empty()) {
      graph->replay();
    }
    c10::cuda::device_synchronize();
  }

  void train() {
    net->zero_grad();
    net->forward(input).pow(2).mean().backward();
  }

  std::shared_ptr<UnevenNet> net;
  std::optional<Reducer> reducer;
  at::Tensor input;
  std::optional<at::cuda::CUDAGraph> graph;
  std::string refusal;
};

/// Requires that ranks end in time and without a message.
void check_end(bool graph_first) {
  const auto outcomes = gpu_ranks(2, [graph_first](ProcessGroup group) {
    Captured captured(group);
    REQUIRE(captured.refusal.empty());
    const auto start = Clock::now();
    if (graph_first) {
      captured.graph.reset();
    }
    captured.reducer.reset();
    group = ProcessGroup();
    captured.graph.reset();
    c10::cuda::device_synchronize();
    INFO("it took " << seconds_since(start) << " s");
    REQUIRE(seconds_since(start) < (graph_first ? 5 : 15));
    const auto sum = torch::ones({8}, torch::kCUDA).sum(); // the GPU is usable
    REQUIRE(sum.item<float>() == 8);
  });
  for (const auto& outcome : outcomes) {
    REQUIRE_THAT(outcome.output, !Has("ddp: "));
  }
}

TEST_CASE("a CUDA graph ends before its Reducer and group") {
  check_end(/*graph_first=*/true);
}

// NCCL keeps a communicator until the graphs that use it are destroyed.
TEST_CASE("a CUDA graph outlives its Reducer and group") {
  check_end(/*graph_first=*/false);
}

TEST_CASE("replays of a CUDA graph are progress where they are reported") {
  count_gpus();
  const auto options = RankOptions()
                           .environment({{"DDP_BACKEND", "nccl"}})
                           .timeout(std::chrono::seconds(120));
  ranks(1, options, [] {
    const SharedPage<HeartbeatPage> page;
    const int descriptor = dup(std::stoi(page.descriptor()));
    setenv(kHeartbeatVariable, std::to_string(descriptor).c_str(), 1);
    Captured captured(init_process_group());
    constexpr uint64_t kReplays = 100;
    const auto beats_of_replays = [&](bool reported) {
      const uint64_t before = page->beats;
      for (uint64_t i = 0; i < kReplays; ++i) {
        captured.graph->replay();
        c10::cuda::device_synchronize();
        if (reported) {
          report_progress();
        }
      }
      return page->beats - before;
    };
    REQUIRE(beats_of_replays(false) == 0);
    REQUIRE(beats_of_replays(true) == kReplays);
  });
}

GPU_TEST("a capture in the second backward is refused, in the third not", 2) {
  REQUIRE_THAT(
      Captured(group, 1).refusal,
      Has("this is backward pass 2",
          "Run 2 or more backward passes before capturing"));
  REQUIRE(Captured(group, 2).refusal.empty());
}

// Waits for the GPU, and captures that are rejected.

at::Tensor loss_of(UnevenNet& net, const at::Tensor& input) {
  return net.forward(input).pow(2).mean();
}

/// Makes LibTorch throw if this process waits for a GPU.
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

template <typename Work>
std::string error_of_captured(Work&& work) {
  at::cuda::CUDAGraph graph;
  return capture(graph, work);
}

GPU_TEST("a capture that does not reach a parameter is refused", 2) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  auto net = net_on_gpu(group);
  Reducer reducer(net, group);
  const auto input = input_of(group, 0).to(group.device());
  for (int step = 0; step < 3; ++step) {
    loss_of(*net, input).backward();
  }
  const auto parameter = net->parameters().front();
  REQUIRE_THAT(
      error_of_captured([&] { (parameter * 2).sum().backward(); }),
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
      Has("the number of earlier steps"));
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

} // namespace ddp::test::gpu_graphs_test
