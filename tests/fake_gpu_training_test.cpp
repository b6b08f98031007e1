// Steps of a training on a fake GPU, which records the order of its streams and
// the host's waits, and repeats recorded work (support/fake_gpu.h).

#include <tests/support/comm_hooks.h>
#include <tests/support/fake_gpu.h>
#include <tests/support/gpus.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <ddp/ddp.h>
#include <ddp/support/current_stream.h>

namespace ddp::test::fake_gpu_training_test {

bool same_tensors(
    const std::vector<at::Tensor>& a,
    const std::vector<at::Tensor>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](auto& left, auto& right) {
        return torch::equal(fake_gpu::on_cpu(left), fake_gpu::on_cpu(right));
      });
}

/// A net whose buffer changes in each forward.
struct CenteredNet : UnevenNet {
  torch::Tensor mean = register_buffer("mean", torch::zeros({7}));

  torch::Tensor forward(const torch::Tensor& x) {
    mean.mul_(0.9).add_(x.mean(0), 0.1);
    return UnevenNet::forward(x - mean);
  }
};

constexpr double kMaxNorm = 0.1;

struct ClippedTraining {
  explicit ClippedTraining(const ProcessGroup& group)
      : net(net_on_gpu<CenteredNet>(group)),
        model(net, group),
        optimizer(
            net->parameters(),
            torch::optim::SGDOptions(0.01).momentum(0.9)) {}

  void step(const torch::Tensor& input) {
    net->zero_grad();
    model->forward(input).pow(2).mean().backward();
    norm = model->reducer().clip_grad_norm(kMaxNorm);
    optimizer.step();
  }

  std::vector<at::Tensor> tensors() {
    auto all = net->parameters();
    all.push_back(net->mean);
    all.push_back(norm);
    return all;
  }

  std::shared_ptr<CenteredNet> net;
  DistributedDataParallel<CenteredNet> model;
  FusedSGD optimizer;
  torch::Tensor norm;
};

FAKE_GPU_TEST("a captured step clips by the norm of each replay's gradients") {
  ClippedTraining replayed(gpu_group);
  ClippedTraining eager(gpu_group);
  const auto input = batch(group, 0, 7).to(fake_gpu::kDevice);
  for (int step = 0; step < 3; ++step) {
    replayed.step(input);
    eager.step(input);
  }
  fake_gpu::Graph graph;
  graph.capture_begin();
  replayed.step(input);
  graph.capture_end();
  eager.step(input);
  size_t clipped = 0;
  constexpr int kReplays = 6;
  for (int step = 1; step <= kReplays; ++step) {
    const double scale = step % 2 == 0 ? 0.01 : 10;
    input.copy_(batch(group, step, 7) * scale);
    graph.replay();
    eager.step(input);
    INFO("step " << step);
    REQUIRE(same_tensors(replayed.tensors(), eager.tensors()));
    const auto norm = fake_gpu::on_cpu(eager.norm).item<double>();
    clipped += static_cast<size_t>(norm > kMaxNorm);
  }
  REQUIRE(clipped > 0);
  REQUIRE(clipped < kReplays);
}

FAKE_GPU_TEST("a captured step cannot check the norm on the host", 1) {
  const auto net = net_on_gpu(gpu_group);
  Reducer reducer(net, gpu_group);
  net->forward(batch(group, 0, 7).to(fake_gpu::kDevice)).sum().backward();
  fake_gpu::Graph graph;
  graph.capture_begin();
  REQUIRE_THROWS_WITH(
      reducer.clip_grad_norm(1., 2., /*error_if_nonfinite=*/true),
      Has("the host waits"));
  graph.capture_end();
  reducer.clip_grad_norm(1., 2., /*error_if_nonfinite=*/true);
}

std::string error_of_captured(const std::function<void()>& work) {
  fake_gpu::Graph graph;
  graph.capture_begin();
  const auto text = error_of<c10::Error>(work);
  graph.capture_end();
  return text;
}

FAKE_GPU_TEST("optimizers that need the host are not captured", 1) {
  auto weight = torch::ones({8}, fake_gpu::kDevice).requires_grad_();
  weight.mutable_grad() = torch::ones({8}, fake_gpu::kDevice);
  const std::vector<torch::Tensor> parameters{weight};
  Adam adam(parameters);
  AdamW adamw(parameters);
  FusedAdam fused_adam(parameters);
  FusedAdamW fused_adamw(parameters);
  for (torch::optim::Optimizer* optimizer :
       {static_cast<torch::optim::Optimizer*>(&adam),
        static_cast<torch::optim::Optimizer*>(&adamw),
        static_cast<torch::optim::Optimizer*>(&fused_adam),
        static_cast<torch::optim::Optimizer*>(&fused_adamw)}) {
    optimizer->step();
    REQUIRE_THAT(
        error_of_captured([&] { optimizer->step(); }),
        Has("the number of earlier steps"));
    optimizer->step();
  }
  FusedSGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  REQUIRE_THAT(
      error_of_captured([&] { sgd.step(); }),
      Has("first step of a fused optimizer"));
  GradScaler scaler;
  scaler.scale(torch::ones({}, fake_gpu::kDevice));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { scaler.unscale_(sgd); },
           [&] { scaler.step(sgd); },
           [&] { scaler.update(); }}) {
    REQUIRE_THAT(error_of_captured(call), Has("call them after each replay"));
  }
}

FAKE_GPU_TEST("a momentum of another layout is not captured", 1) {
  using State = torch::optim::SGDParamState;
  auto weight = torch::randn({2, 3, 4, 4})
                    .contiguous(at::MemoryFormat::ChannelsLast)
                    .to(fake_gpu::kDevice)
                    .requires_grad_();
  weight.mutable_grad() = torch::ones_like(weight);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  FusedSGD sgd(std::vector<torch::Tensor>{weight}, options);
  sgd.step();
  auto& state =
      static_cast<State&>(*sgd.state().at(weight.unsafeGetTensorImpl()));
  state.momentum_buffer(state.momentum_buffer().contiguous()); // as if loaded
  REQUIRE_THAT(
      error_of_captured([&] { sgd.step(); }),
      Has("first step of a fused optimizer", "Step at least once"));
  sgd.step();
  const auto copy = weight.detach().clone().requires_grad_();
  copy.mutable_grad() = weight.grad().clone();
  FusedSGD eager(std::vector<torch::Tensor>{copy}, options);
  auto same = std::make_unique<State>();
  same->momentum_buffer(state.momentum_buffer().clone());
  eager.state()[copy.unsafeGetTensorImpl()] = std::move(same);
  fake_gpu::Graph graph;
  graph.capture_begin();
  sgd.step();
  graph.capture_end();
  graph.replay();
  for (int step = 0; step < 2; ++step) {
    eager.step();
  }
  REQUIRE(same_tensors({weight}, {copy}));
}

FAKE_GPU_TEST("a sharded step in a graph compares no gradients on the host") {
  auto weight = torch::ones({8}, fake_gpu::kDevice).requires_grad_();
  weight.mutable_grad() = torch::ones({8}, fake_gpu::kDevice);
  ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(
      std::vector<torch::Tensor>{weight},
      gpu_group,
      torch::optim::SGDOptions(0.25));
  fake_gpu::Graph graph;
  graph.capture_begin();
  optimizer.step();
  graph.capture_end();
  graph.replay();
  REQUIRE(same_tensors({weight}, {torch::full({8}, 0.5)}));
}

FAKE_GPU_TEST("the scale is not created in a graph, which would reset it", 1) {
  const auto loss = torch::ones({}, fake_gpu::kDevice);
  GradScaler scaler(GradScalerOptions().init_scale(4));
  REQUIRE_THAT(
      error_of_captured([&] { scaler.scale(loss); }),
      Has("GradScaler's first scale(loss)", "before the capture"));
  scaler.scale(loss);
  at::Tensor scaled;
  fake_gpu::Graph graph;
  graph.capture_begin();
  scaled = scaler.scale(loss);
  graph.capture_end();
  scaler.update(8);
  graph.replay();
  REQUIRE(fake_gpu::on_cpu(scaled).item<float>() == 8);
}

FAKE_GPU_TEST("the host waits for the scale of a loss on the CPU", 1) {
  GradScaler scaler(GradScalerOptions().init_scale(4));
  scaler.scale(torch::ones({}, fake_gpu::kDevice));
  const auto before = fake_gpu::host_waits();
  REQUIRE(scaler.scale(torch::ones({})).item<float>() == 4);
  REQUIRE(fake_gpu::host_waits() == before + 1);
}

/// Requires that the backward pass after `earlier` ones cannot be captured, for
/// a reason that has `text`.
void refuse_capture(
    const ProcessGroup& group,
    const ReducerOptions& options,
    int earlier,
    const char* text) {
  const auto net = net_on_gpu(group);
  const Reducer reducer(net, group, options);
  const auto input = input_of(group, 0).to(fake_gpu::kDevice);
  for (int step = 0; step < earlier; ++step) {
    net->forward(input).sum().backward();
  }
  REQUIRE_THAT(
      error_of_captured([&] { net->forward(input).sum().backward(); }),
      Has(text));
}

FAKE_GPU_TEST("the first two backward passes are not captured") {
  refuse_capture(gpu_group, {}, 1, "this is backward pass 2");
}

FAKE_GPU_TEST("the checks of each step are not captured") {
  const auto checks = ReducerOptions().check_finite(true);
  refuse_capture(gpu_group, checks, 3, "check_finite and");
}

FAKE_GPU_TEST("a PowerSGDHook is not captured, since it counts steps") {
  const auto hook = std::make_shared<PowerSGDHook>(PowerSGDOptions());
  refuse_capture(gpu_group, with_hook(hook), 3, "count steps on the host");
}

FAKE_GPU_TEST("a PostLocalSGDHook is not captured, since it counts steps") {
  const auto hook = std::make_shared<PostLocalSGDHook>(
      PostLocalSGDOptions().post_local_gradient_allreduce(false));
  refuse_capture(gpu_group, with_hook(hook), 3, "count steps on the host");
}

FAKE_GPU_TEST("parameters are not averaged in a graph, which counts no steps") {
  const std::vector<at::Tensor> parameters{torch::ones({8}, fake_gpu::kDevice)};
  PeriodicModelAverager averager(gpu_group, PeriodicModelAveragerOptions());
  REQUIRE_THAT(
      error_of_captured([&] { averager.average_parameters(parameters); }),
      Has("average_parameters counts steps on the host"));
  REQUIRE(averager.step() == 0);
}

FAKE_GPU_TEST("reductions over gloo or MPI are not captured") {
  for (const auto* name : {"gloo", "mpi"}) {
    const auto own = fake_gpu::group_of(group);
    fake_gpu::set_backend_name(name);
    refuse_capture(own, {}, 3, "over gloo or MPI");
  }
}

// In the first backward pass, the buckets are filled at its end.
FAKE_GPU_TEST("the memory of another stream's gradients is kept for the copy") {
  const auto side = fake_gpu::new_stream();
  const auto main = detail::current_stream(fake_gpu::kDevice);
  c10::OptionalStreamGuard guard(side);
  const auto net = net_on_gpu(gpu_group);
  const Reducer reducer(net, gpu_group);
  std::vector<at::Tensor> memory; // without ownership
  for (const auto& parameter : net->parameters()) {
    parameter.register_hook([&](const at::Tensor& gradient) {
      memory.push_back(fake_gpu::on_cpu(gradient));
    });
  }
  const auto input = batch(group, 0, 7).to(fake_gpu::kDevice);
  const auto loss = net->forward(input).sum();
  guard.reset();
  c10::Event done(c10::kPrivateUse1);
  done.record(side);
  done.block(main);
  loss.backward();
  REQUIRE(memory.size() == net->parameters().size());
  for (const auto& gradient : memory) {
    REQUIRE(fake_gpu::is_recorded(gradient, main));
  }
}

FAKE_GPU_TEST("the comparison at the end waits for the stream that trained") {
  std::shared_ptr<UnevenNet> net;
  std::optional<Reducer> reducer;
  {
    const c10::StreamGuard guard(fake_gpu::new_stream());
    net = net_on_gpu(gpu_group);
    reducer.emplace(net, gpu_group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto input = batch(group, 0, 7).to(fake_gpu::kDevice);
    net->forward(input).sum().backward();
    optimizer.step();
  }
  reducer.reset();
}

/// A net whose backward reads a parameter after its gradient is complete.
struct ReusedNet : torch::nn::Module {
  torch::Tensor early = register_parameter("early", torch::randn({6, 6}));
  torch::Tensor late = register_parameter("late", torch::randn({6, 6}));

  torch::Tensor forward(const torch::Tensor& x) {
    return x.mm(early).mm(late.detach()).mm(late);
  }
};

FAKE_GPU_TEST("a step in backward waits for backward's reads of parameters") {
  const auto inside = net_on_gpu<ReusedNet>(gpu_group);
  const auto after = net_on_gpu<ReusedNet>(gpu_group);
  const auto options =
      ReducerOptions().bucket_cap_mb(1e-4).first_bucket_cap_mb(1e-4);
  Reducer reducer(inside, gpu_group, options);
  const Reducer reducer_after(after, gpu_group, options);
  torch::optim::SGD optimizer(inside->parameters(), 0.01);
  torch::optim::SGD optimizer_after(after->parameters(), 0.01);
  reducer.step_in_backward(optimizer);
  for (int step = 0; step < 5; ++step) {
    const auto input = batch(group, step, 6).to(fake_gpu::kDevice);
    inside->zero_grad();
    inside->forward(input).pow(2).mean().backward();
    after->zero_grad();
    after->forward(input).pow(2).mean().backward();
    optimizer_after.step();
    INFO("step " << step);
    REQUIRE(same_tensors(inside->parameters(), after->parameters()));
    fake_gpu::require_no_races();
  }
  REQUIRE(reducer.buckets().size() == 2);
}

/// Several synchronised batch-norms between layers that fill buckets.
struct NormedNet : LayeredNet {
  torch::nn::ModuleList layers = add("layers", torch::nn::ModuleList());
  torch::nn::ModuleList norms = add("norms", torch::nn::ModuleList());

  explicit NormedNet(const ProcessGroup& group) {
    for (int i = 0; i < 4; ++i) {
      layers->push_back(torch::nn::Linear(7, 7));
      norms->push_back(SyncBatchNorm1d(torch::nn::BatchNormOptions(7), group));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) {
      x = layers->at<torch::nn::LinearImpl>(i).forward(x);
      x = norms->at<SyncBatchNorm1dImpl>(i).forward(x).tanh();
    }
    return x;
  }
};

// NCCL's kernels of several communicators never block each other if all ranks
// queue them in one order (NCCL_LAUNCH_ORDER_IMPLICIT).
FAKE_GPU_TEST("ranks queue collectives of several communicators in one order") {
  const auto norm_group = fake_gpu::group_of(group);
  const auto net = net_on_gpu<NormedNet>(gpu_group, norm_group);
  const Reducer reducer(
      net,
      gpu_group,
      ReducerOptions().bucket_cap_mb(1e-4).first_bucket_cap_mb(1e-4));
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    fake_gpu::take_collectives();
    const auto input = batch(group, step, 7).to(fake_gpu::kDevice);
    net->forward(input).pow(2).mean().backward();
    const auto queued = fake_gpu::take_collectives();
    INFO(queued);
    const auto hash = static_cast<int64_t>(std::hash<std::string>()(queued));
    REQUIRE(equal_on_all(group, torch::tensor(hash, torch::kLong)));
    if (step > 1) { // the buckets are final, and launched between norms
      REQUIRE_THAT(queued, Has(" on 1\nallreduce of 112 bytes on 2"));
    }
  }
}

} // namespace ddp::test::fake_gpu_training_test
