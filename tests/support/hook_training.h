#pragma once

#include <tests/support/comm_hooks.h>
#include <tests/support/nets.h>

namespace ddp::test {

// As in tests/parity/comm_hooks.py: known gradients, some of shapes that
// PowerSGD compresses, in several buckets after a rebuild.

constexpr int kHookSteps = 6;

inline std::vector<at::Tensor> hook_tensors(uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> tensors;
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {40, 60},
           {60},
           {60, 40},
           {16, 8, 3, 3},
           {40, 60},
           {33},
           {5, 3},
           {64, 48}}) {
    tensors.push_back(torch::randn(shape));
  }
  return tensors;
}

/// Copies of the tensors on a device.
inline std::vector<at::Tensor> on_device(
    const c10::Device& device,
    std::vector<at::Tensor> tensors,
    bool requires_grad = false) {
  for (auto& tensor : tensors) {
    tensor = tensor.detach().to(device, false, /*copy=*/true);
    tensor.requires_grad_(requires_grad);
  }
  return tensors;
}

inline std::vector<at::Tensor> hook_parameters(
    const c10::Device& device = c10::kCPU) {
  return on_device(device, hook_tensors(3), /*requires_grad=*/true);
}

/// A rank's gradients in a step.
inline std::vector<at::Tensor> hook_gradients(
    int64_t step,
    int64_t rank,
    const c10::Device& device = c10::kCPU) {
  return on_device(device, hook_tensors(1000 * step + rank));
}

/// Runs a backward pass that gives these gradients to the parameters.
inline void backward_to(
    const std::vector<at::Tensor>& parameters,
    const std::vector<at::Tensor>& gradients) {
  auto loss = torch::zeros({}, gradients[0].device());
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad().reset();
    loss = loss + (parameters[i] * gradients[i]).sum();
  }
  loss.backward();
}

/// Options with which PowerSGD starts to compress as early as possible.
inline PowerSGDOptions early() {
  return PowerSGDOptions().start_iteration(2);
}

inline ReducerOptions hook_options(std::shared_ptr<CommHook> hook) {
  return ReducerOptions()
      .comm_hook(std::move(hook))
      .bucket_cap_mb(0.01)
      .share_communicator(true);
}

/// The mean over ranks of their gradients in a step, in double precision.
inline std::vector<at::Tensor> hook_means(int64_t step, int64_t ranks) {
  std::vector<at::Tensor> means;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto gradients = hook_gradients(step, rank);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto share = gradients[i].to(torch::kDouble) / ranks;
      rank == 0 ? means.push_back(share) : (void)means[i].add_(share);
    }
  }
  return means;
}

inline double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

/// Requires that a hook computes the mean over ranks, times `factor`, within
/// `tolerance`, bit-identically on all ranks.
inline void check_mean(
    const ProcessGroup& group,
    const std::shared_ptr<CommHook>& hook,
    double tolerance,
    double factor = 1) {
  const auto device = group.device();
  const auto parameters = hook_parameters(device);
  Reducer reducer(parameters, group, hook_options(hook));
  for (int step = 0; step < 4; ++step) {
    backward_to(parameters, hook_gradients(step, group.rank(), device));
    const auto means = hook_means(step, group.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& grad = parameters[i].grad();
      const auto error = largest(grad.cpu() - factor * means[i]);
      INFO("step " << step << ", parameter " << i << ", error " << error);
      REQUIRE(error <= tolerance);
      REQUIRE(equal_on_all(group, grad));
    }
  }
}

/// Two Reducers with hooks of several rounds, alone or in chains, share each
/// backward pass, in which ranks reach them in different orders.
inline void check_compression_together(const ProcessGroup& group) {
  for (const bool in_chain : {false, true}) {
    auto a = torch::ones({16, 16}, torch::requires_grad());
    auto b = torch::ones({16, 16}, torch::requires_grad());
    const auto options = [&] {
      std::shared_ptr<CommHook> hook = std::make_shared<PowerSGDHook>(early());
      return with_hook(in_chain ? chain_of({hook}) : hook);
    };
    Reducer first({a}, group, options());
    Reducer second({b}, group, options());
    for (int step = 0; step < 4; ++step) {
      const auto loss =
          group.rank() == 0 ? (a * (b * 2)).sum() : ((a * 2) * b).sum();
      loss.backward();
      REQUIRE(equal_on_all(group, a.grad()));
      REQUIRE(equal_on_all(group, b.grad()));
    }
  }
}

} // namespace ddp::test
