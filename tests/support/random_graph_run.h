#pragma once

// Runs random nets.
#include <tests/support/activation_checkpoint.h>
#include <tests/support/random_graph.h>

#include <cmath>
#include <map>
#include <random>

namespace ddp::test {

inline uint64_t mix(std::initializer_list<uint64_t> values) {
  uint64_t result = 0;
  for (const auto value : values) {
    result = std::mt19937_64(result + value)();
  }
  return result;
}

inline std::vector<int64_t> sizes_of(Shape shape, int64_t width) {
  const std::map<Shape, std::vector<int64_t>> sizes{
      {Shape::kMatrix, {width, width}},
      {Shape::kVector, {width}},
      {Shape::kScalar, {}},
      {Shape::kImage, {2, width, 3, 2}},
      {Shape::kEmpty, {0, width}}};
  return sizes.at(shape);
}

/// The same values with other strides.
inline at::Tensor laid_out(const at::Tensor& values, Layout layout) {
  if (layout == Layout::kContiguous || values.dim() == 0) {
    return values;
  }
  if (layout == Layout::kGapped) {
    auto sizes = values.sizes().vec();
    sizes.push_back(2);
    return at::empty(sizes, values.options()).select(-1, 1).copy_(values);
  }
  return values.dim() == 4
      ? values.contiguous(at::MemoryFormat::ChannelsLast)
      : values.transpose(0, -1).contiguous().transpose(0, -1);
}

inline at::Tensor uniform(uint64_t seed, at::IntArrayRef sizes) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::rand(sizes, generator, at::TensorOptions(at::kDouble));
}

/// A narrow dtype would lose the slope near 1.
inline at::Tensor bounded(const at::Tensor& x) {
  return torch::tanh(x.to(at::kDouble));
}

/// The parameters with their initial values, the same in each call.
inline std::vector<at::Tensor> make_parameters(const Graph& graph) {
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const auto& description = graph.parameters[i];
    const auto values =
        uniform(
            mix({graph.seed, i}), sizes_of(description.shape, graph.width)) +
        0.5;
    parameters.push_back(
        laid_out(values.to(description.dtype), description.layout)
            .detach()
            .set_requires_grad(!graph.frozen[i]));
  }
  return parameters;
}

/// The position of a forward pass, which determines its input and branches.
struct Place {
  size_t step = 0;
  size_t pass = 0;
  int forward = 0;
  int64_t rank = 0;
};

/// Runs a graph's forward passes. Must outlive the backward pass if the graph
/// uses activation checkpointing.
struct Interpreter {
  const Graph& graph;
  const std::vector<at::Tensor>& parameters;
  Place place;
  bool checkpoints;

  /// The loss of this position's input: fp64, a scalar.
  at::Tensor loss() const {
    const auto output = run(graph.root, input()).to(at::kDouble);
    return (output * (output * 0.25 + 1)).sum();
  }

  at::Tensor run(const Node& node, at::Tensor x) const {
    switch (node.operation) {
      case Operation::kLinear:
        return run_linear(node, x);
      case Operation::kScale: {
        const auto& scale = parameters[node.parameters[0]];
        return bounded(x.to(scale.dtype()) * scale);
      }
      case Operation::kShift:
        return run_shift(node, x);
      case Operation::kDetach:
        return x.detach();
      case Operation::kSequence:
        for (const auto& child : node.children) {
          x = run(child, x);
        }
        return x;
      case Operation::kMean: {
        at::Tensor sum;
        for (const auto& child : node.children) {
          const auto part = run(child, x).to(at::kDouble);
          sum = sum.defined() ? sum + part : part;
        }
        return sum / static_cast<double>(node.children.size());
      }
      case Operation::kBranch:
        return run(node.children[choose(node)], x);
      case Operation::kCheckpoint:
        return run_checkpoint(node, x);
    }
    TORCH_INTERNAL_ASSERT(false);
  }

  /// Multiples of 1/8, which every dtype can represent.
  at::Tensor input() const {
    const auto seed = mix(
        {graph.seed,
         1000,
         place.step,
         place.pass,
         static_cast<uint64_t>(place.forward),
         static_cast<uint64_t>(place.rank)});
    return (uniform(seed, {2, graph.width}) * 16 - 8).round() / 8;
  }

  size_t choose(const Node& branch) const {
    const auto drawn = mix(
        {graph.seed,
         2000 + branch.number,
         graph.steady ? 0 : place.step,
         graph.steady ? 0 : place.pass,
         graph.steady ? 0 : static_cast<uint64_t>(place.forward),
         graph.by_rank ? static_cast<uint64_t>(place.rank) : 0});
    return drawn % branch.children.size();
  }

  at::Tensor run_linear(const Node& node, const at::Tensor& x) const {
    const auto& weight = parameters[node.parameters[0]];
    const auto& bias = parameters[node.parameters[1]];
    const auto product = x.to(weight.dtype()).matmul(weight.t());
    return bounded(product.to(bias.dtype()) + bias);
  }

  /// Each element has a different weight, so that a permutation of elements
  /// changes the loss.
  at::Tensor run_shift(const Node& node, const at::Tensor& x) const {
    const auto& shift = parameters[node.parameters[0]];
    const auto count = std::max<int64_t>(shift.numel(), 1);
    const auto options = shift.options().requires_grad(false);
    const auto weights =
        at::arange(1, shift.numel() + 1, options).view(shift.sizes()) / count;
    const auto sum = (shift * weights).sum();
    return bounded(x.to(shift.dtype()) - sum / (4 * std::sqrt(count)));
  }

  at::Tensor run_checkpoint(const Node& node, const at::Tensor& x) const {
    const auto& segment = node.children[0];
    if (!checkpoints) {
      return run(segment, x);
    }
    const auto input =
        x.requires_grad() ? x : x.detach().set_requires_grad(true);
    return checkpoint(input, [interpreter = *this, &segment](const auto& y) {
      return interpreter.run(segment, y);
    });
  }
};

} // namespace ddp::test
