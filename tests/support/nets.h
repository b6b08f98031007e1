#pragma once

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <algorithm>

namespace ddp::test {

/// Layers of uneven sizes, the largest above the first bucket's default cap.
struct UnevenNet : torch::nn::Module {
  torch::nn::Linear first{nullptr}, wide{nullptr}, last{nullptr};

  UnevenNet() {
    first = register_module("first", torch::nn::Linear(7, 513));
    wide = register_module("wide", torch::nn::Linear(513, 701));
    last = register_module("last", torch::nn::Linear(701, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::relu(wide(torch::relu(first(x)))));
  }
};

/// Two branches, of which a forward takes one.
struct BranchNet : torch::nn::Module {
  torch::nn::Linear stem{nullptr}, left{nullptr}, right{nullptr},
      never{nullptr};

  BranchNet() {
    stem = register_module("stem", torch::nn::Linear(4, 8));
    left = register_module("left", torch::nn::Linear(8, 2));
    right = register_module("right", torch::nn::Linear(8, 2));
    never = register_module("never", torch::nn::Linear(8, 2));
  }
  torch::Tensor forward(torch::Tensor x, bool go_left) {
    x = torch::relu(stem(x));
    return go_left ? left(x) : right(x);
  }
};

/// A different batch on each rank and in each step.
inline torch::Tensor batch(
    const ProcessGroup& group,
    int64_t step,
    int64_t width) {
  torch::manual_seed(1000 * step + group.rank());
  return torch::randn({5, width});
}

/// Copies parameters by value into a module of the same shape.
inline void copy_parameters(
    const torch::nn::Module& from,
    torch::nn::Module& to) {
  torch::NoGradGuard no_grad;
  const auto source = from.parameters();
  auto target = to.parameters();
  for (size_t i = 0; i < source.size(); ++i) {
    target[i].copy_(source[i]);
  }
}

inline void reset_gradients(const torch::nn::Module& net) {
  for (auto& parameter : net.parameters()) {
    parameter.mutable_grad().reset();
  }
}

/// The gradients that one process would find from the ranks' local ones.
inline std::vector<at::Tensor> average(
    const ProcessGroup& group,
    const torch::nn::Module& local) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : local.parameters()) {
    auto grad = parameter.grad().defined() ? parameter.grad().clone()
                                           : torch::zeros_like(parameter);
    group.all_reduce(grad, ddp::ReduceOp::kMean);
    result.push_back(grad);
  }
  return result;
}

/// Whether two nets have the same parameters, bit for bit.
inline bool same_parameters(
    const torch::nn::Module& a,
    const torch::nn::Module& b) {
  const auto left = a.parameters();
  const auto right = b.parameters();
  return std::equal(
      left.begin(), left.end(), right.begin(), right.end(), torch::equal);
}

/// Whether all ranks hold the same bits.
inline bool equal_on_all(
    const ProcessGroup& group,
    const torch::Tensor& tensor) {
  for (const auto& other : group.all_gather(tensor)) {
    if (!other.equal(tensor)) {
      return false;
    }
  }
  return true;
}

/// The same of all parameters of a net.
inline bool equal_on_all(
    const ProcessGroup& group,
    const torch::nn::Module& net) {
  for (const auto& parameter : net.parameters()) {
    if (!equal_on_all(group, parameter)) {
      return false;
    }
  }
  return true;
}

} // namespace ddp::test
