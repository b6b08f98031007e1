// Communication hooks on a fake GPU, which records the order of its streams
// (support/fake_gpu.h).
#include <tests/support/fake_gpu.h>
#include <tests/support/hook_training.h>

#include <ddp/ddp.h>

namespace ddp::test::fake_gpu_hooks_test {

using Tensors = std::vector<at::Tensor>;

Hooks make_hooks(const ProcessGroup& group) {
  const auto power = [](int64_t rank) {
    return std::make_shared<PowerSGDHook>(
        early().matrix_approximation_rank(rank));
  };
  return {
      fp16_compress_hook(),
      power(1),
      power(3),
      bf16_compress_hook(power(1)),
      std::make_shared<PowerSGDHook>(early().whole_bucket(true)),
      std::make_shared<QuantizationHook>(
          QuantizationOptions().channel_size(512)),
      chain_of(
          {std::make_shared<NoopHook>(),
           power(3), // two columns would be summed in another order
           std::make_shared<AllReduceHook>()}),
      std::make_shared<PostLocalSGDHook>(
          PostLocalSGDOptions().subgroup(group))};
}

/// The gradients of some steps, on the CPU.
Tensors train(
    const ProcessGroup& group,
    const std::shared_ptr<CommHook>& hook) {
  const auto device = group.device();
  const auto parameters = hook_parameters(device);
  Reducer reducer(parameters, group, hook_options(hook));
  Tensors results;
  for (int step = 0; step < 5; ++step) {
    backward_to(parameters, hook_gradients(step, group.rank(), device));
    for (const auto& parameter : parameters) {
      results.push_back(parameter.grad().to(c10::kCPU, false, /*copy=*/true));
    }
  }
  return results;
}

FAKE_GPU_TEST(
    "on a device with streams hooks have the CPU's bits, without races") {
  const auto on_cpu = make_hooks(group);
  const auto on_gpu = make_hooks(gpu_group);
  for (size_t h = 0; h < on_cpu.size(); ++h) {
    const auto expected = train(group, on_cpu[h]);
    const auto results = train(gpu_group, on_gpu[h]);
    for (size_t i = 0; i < results.size(); ++i) {
      INFO(
          "hook " << h << ", step " << i / 8 << ", parameter " << i % 8
                  << ": they differ by " << largest(results[i] - expected[i]));
      REQUIRE(results[i].equal(expected[i]));
    }
    INFO("hook " << h);
    fake_gpu::require_no_races();
  }
}

FAKE_GPU_TEST(
    "parameters on a device with streams are averaged without races") {
  auto parameters = hook_gradients(0, group.rank(), fake_gpu::kDevice);
  for (auto& parameter : parameters) {
    parameter.requires_grad_();
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  PeriodicModelAverager averager(gpu_group, PeriodicModelAveragerOptions());
  averager.average_parameters(parameters);
  const auto means = hook_means(0, group.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto mean = parameters[i].detach().to(c10::kCPU);
    REQUIRE(largest(mean - means[i]) < 1e-6);
  }
}

} // namespace ddp::test::fake_gpu_hooks_test
