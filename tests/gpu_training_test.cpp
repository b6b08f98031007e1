// Training loops on GPUs: optimizers, clipping, scales, checkpoints, batches.

#include <ddp/ddp.h>
#include <tests/support/gpus.h>
#include <tests/support/hook_training.h>
#include <tests/support/made_samples.h>
#include <tests/support/optimizers.h>
#include <tests/support/sharded.h>
#include <tests/support/twins.h>

namespace ddp::test::gpu_training_test {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;

using Tensors = std::vector<at::Tensor>;

/// Parameters of several shapes with known gradients that do not depend on
/// them, so rounding errors do not grow over steps.
struct KnownGradients {
  KnownGradients(
      const ProcessGroup& its_group,
      const MakeOptimizer& make,
      bool in_backward)
      : group(its_group),
        parameters(hook_parameters(group.device())),
        reducer(parameters, group, shared().bucket_cap_mb(0.01)),
        optimizer(make(parameters)),
        steps_itself(!in_backward) {
    if (in_backward) {
      reducer.step_in_backward(*optimizer);
    }
  }

  void train(int steps) const {
    for (int step = 0; step < steps; ++step) {
      backward_to(
          parameters, hook_gradients(step, group.rank(), group.device()));
      if (steps_itself) {
        optimizer->step();
      }
    }
  }

  ProcessGroup group;
  Tensors parameters;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  bool steps_itself;
};

GPU_TEST("fused optimizers on GPUs compute what LibTorch's do", 2) {
  for (const auto& kind : fused_kinds()) {
    const KnownGradients fused(group, kind.fused, false);
    const KnownGradients in_backward(group, kind.fused, true);
    const KnownGradients plain(group, kind.plain, false);
    for (const auto* each : {&fused, &in_backward, &plain}) {
      each->train(5);
    }
    const auto before = on_device(group.device(), hook_tensors(3));
    for (size_t i = 0; i < before.size(); ++i) {
      INFO(kind.python << ", parameter " << i);
      REQUIRE(fused.parameters[i].allclose(plain.parameters[i], 1e-5, 1e-6));
      REQUIRE(in_backward.parameters[i].equal(fused.parameters[i]));
      REQUIRE(!fused.parameters[i].allclose(before[i], 1e-3, 1e-3));
    }
  }
}

GPU_TEST("gradients on GPUs are clipped by their norm over all buckets") {
  Twins<UnevenNet> twins(group, shared().bucket_cap_mb(0.5));
  int step = 0;
  for (const double type : {2., 1., std::numeric_limits<double>::infinity()}) {
    for (const double max_norm : {1e-2, 1e6}) {
      const auto input = input_of(group, step++).to(group.device());
      twins.reset();
      twins.backward([&](auto& net) { return net.forward(input).sum(); });
      Tensors expected;
      for (const auto& mean : average(group, *twins.local)) {
        expected.push_back(torch::zeros_like(mean, torch::kDouble));
        expected.back().mutable_grad() = mean.to(torch::kDouble);
      }
      const auto norm =
          torch::nn::utils::clip_grad_norm_(expected, max_norm, type);
      const auto own = twins.reducer.clip_grad_norm(max_norm, type);
      INFO("norm " << type << ", at most " << max_norm);
      REQUIRE(own.device() == group.device());
      REQUIRE(std::abs(own.item<double>() / norm - 1) < 1e-5);
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto& mean = expected[i].grad();
        const auto largest = mean.abs().max().item<double>();
        const auto ours = twins.net->parameters()[i].grad().to(torch::kDouble);
        REQUIRE(ours.allclose(mean, 1e-4, 1e-5 * largest));
      }
    }
  }
  REQUIRE(twins.reducer.buckets().size() > 1);
}

GPU_TEST("an overflow on one GPU makes all ranks skip the step") {
  const auto options = torch::TensorOptions(group.device());
  auto weight = torch::ones({5}, options).requires_grad_();
  const Reducer reducer({weight}, group, shared());
  torch::optim::SGD optimizer({weight}, /*lr=*/1.);
  GradScaler scaler(GradScalerOptions().init_scale(1024));
  for (const bool overflows : {false, true, false}) {
    const auto before = weight.detach().clone();
    const auto scale = scaler.get_scale();
    const bool infinite = overflows && group.rank() == 1;
    optimizer.zero_grad();
    const auto factor = infinite ? std::numeric_limits<float>::infinity()
                                 : static_cast<float>(group.rank());
    scaler.scale((weight * factor).sum()).backward();
    REQUIRE(scaler.step(optimizer) == !overflows);
    scaler.update();
    REQUIRE(scaler.get_scale() == (overflows ? scale / 2 : scale));
    const double mean = overflows ? 0 : 1; // of 0, 1 and 2
    REQUIRE(weight.detach().allclose(before - mean, 1e-5, 1e-6));
    REQUIRE(equal_on_all(group, weight.detach()));
  }
}

GPU_TEST("gradients of autocast on GPUs are the mean, without the scale", 2) {
  const Twins<UnevenNet> twins(group, shared());
  torch::optim::SGD optimizer(twins.net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(1024));
  for (int step = 0; step < 4; ++step) {
    const auto input = input_of(group, step).to(group.device());
    twins.reset();
    twins.backward([&](UnevenNet& net) {
      const AutocastGuard autocast(group.device().type(), torch::kHalf);
      const auto output = net.forward(input);
      REQUIRE(output.scalar_type() == torch::kHalf);
      return scaler.scale(output.to(torch::kFloat).pow(2).mean());
    });
    scaler.unscale_(optimizer);
    const auto means = average(group, *twins.local);
    for (size_t i = 0; i < means.size(); ++i) {
      const auto grad = twins.net->parameters()[i].grad();
      INFO("step " << step << ", parameter " << i);
      REQUIRE(grad.allclose(means[i] / 1024, 1e-5, 1e-8));
    }
    REQUIRE(scaler.step(optimizer));
    scaler.update();
    copy_parameters(*twins.net, *twins.local);
  }
}

GPU_TEST("a sharded optimizer on GPUs has the bits of the optimizer itself") {
  check_bits<torch::optim::Adam>(group, AdamOptions(1e-2));
  check_bits<FusedAdamW>(group, AdamWOptions(1e-2));
  check_bits<FusedSGD>(group, SGDOptions(0.1).momentum(0.9));
}

/// A training whose whole state is in a checkpoint.
struct Resumable {
  explicit Resumable(const ProcessGroup& its_group, double first = 0)
      : group(its_group) {
    if (first != 0) { // values that a load must replace
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) {
        parameter.fill_(first);
      }
    }
    reducer.emplace(net, group, shared());
    state.add("model", *net).add("optimizer", optimizer);
    state.add("scaler", scaler).add("step", step);
  }

  void train(int64_t end) {
    for (; step < end; ++step) {
      const auto input = input_of(group, static_cast<int>(step));
      optimizer.zero_grad();
      const auto output = net->forward(input.to(group.device()));
      scaler.scale(output.pow(2).mean()).backward();
      scaler.step(optimizer);
      scaler.update();
    }
  }

  ProcessGroup group;
  std::shared_ptr<UnevenNet> net = net_on_gpu(group);
  torch::optim::Adam optimizer{net->parameters(), AdamOptions(1e-2)};
  GradScaler scaler{GradScalerOptions().init_scale(256).growth_interval(3)};
  int64_t step = 0;
  std::optional<Reducer> reducer;
  TrainingState state;
};

TEST_CASE("a checkpoint from GPUs is loaded to GPUs, bit for bit") {
  const SharedFolder folder;
  gpu_ranks(2, [&](ProcessGroup group) { // sums of two have one order
    Resumable training(group);
    training.train(2);
    for (const std::string name : {"run.pt", "run.safetensors"}) {
      training.state.save(folder.path + name, group);
    }
    const auto saved = net_on_gpu(group);
    copy_parameters(*training.net, *saved);
    save_checkpoint(folder.path + "net.safetensors", *training.net, group);
    training.train(4);
    for (const std::string name : {"run.pt", "run.safetensors"}) {
      Resumable resumed(group, 3);
      REQUIRE(resumed.state.load(folder.path + name, group));
      REQUIRE(resumed.step == 2);
      REQUIRE(resumed.net->first->weight.device() == group.device());
      REQUIRE(same_parameters(*resumed.net, *saved));
      resumed.train(4);
      REQUIRE(same_parameters(*resumed.net, *training.net));
      REQUIRE(resumed.scaler.get_scale() == training.scaler.get_scale());
    }
    UnevenNet other;
    other.to(group.device());
    load_checkpoint(folder.path + "net.safetensors", other, group);
    REQUIRE(same_parameters(other, *saved));
  });
}

Made rows() {
  return Made([](size_t index) {
    return torch::full({300}, static_cast<int64_t>(index), torch::kFloat);
  });
}

/// The indices of all batches, which must be on the device and complete.
template <typename Batches>
std::vector<int64_t> indices_in(Batches& batches, c10::Device device) {
  std::vector<int64_t> indices;
  for (auto& batch : batches) {
    REQUIRE(batch.data.device() == device);
    REQUIRE(batch.target.device() == device);
    // Computes for a while, as training does.
    const auto sums = batch.data.mm(torch::ones({300, 2000}, device)).mean(1);
    const auto expected = batch.target.to(torch::kFloat) * 300;
    REQUIRE(torch::allclose(sums, expected, 1e-4));
    const auto target = batch.target.cpu();
    for (int64_t i = 0; i < target.size(0); ++i) {
      indices.push_back(target[i].template item<int64_t>());
    }
  }
  return indices;
}

GPU_TEST("batches come to GPUs in the sampler's order", 2) {
  using torch::data::transforms::Stack;
  const auto device = group.device();
  for (const size_t workers : {0, 2}) {
    DistributedSampler alone(kSize, group);
    auto theirs = torch::data::make_data_loader(
        rows().map(Stack<>()),
        DistributedSampler(kSize, group),
        torch::data::DataLoaderOptions(4).workers(workers));
    DevicePrefetcher batches(*theirs, device);
    auto ours = make_data_loader(
        rows().map(Stack<>()),
        DistributedSampler(kSize, group),
        DataLoaderOptions(4).workers(workers).device(device));
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      alone.set_epoch(epoch);
      alone.reset();
      std::vector<int64_t> expected;
      while (const auto batch = alone.next(4)) {
        expected.insert(expected.end(), batch->begin(), batch->end());
      }
      REQUIRE(expected.size() == kSize / 2);
      ours->set_epoch(epoch);
      REQUIRE(indices_in(*ours, device) == expected);
      if (epoch == 0) { // a loader of LibTorch's keeps its sampler
        REQUIRE(indices_in(batches, device) == expected);
      }
    }
  }
}

} // namespace ddp::test::gpu_training_test
