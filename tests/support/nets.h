#pragma once

#include <ddp/process_group.h>
#include <torch/torch.h>

#include <algorithm>

namespace ddp::test {

/// A module whose layers get their names in their declarations.
struct LayeredNet : torch::nn::Module {
 protected:
  template <typename Layer>
  Layer add(const char* name, Layer layer) {
    return register_module(name, std::move(layer));
  }
  torch::nn::Linear linear(const char* name, int64_t inputs, int64_t outputs) {
    return add(name, torch::nn::Linear(inputs, outputs));
  }
};

/// Layers of uneven sizes; the largest exceeds the first bucket's default cap.
struct UnevenNet : LayeredNet {
  torch::nn::Linear first = linear("first", 7, 513);
  torch::nn::Linear wide = linear("wide", 513, 701);
  torch::nn::Linear last = linear("last", 701, 3);

  torch::Tensor forward(torch::Tensor x) {
    return last(torch::relu(wide(torch::relu(first(x)))));
  }
};

/// Two branches, of which a forward pass takes one.
struct BranchNet : LayeredNet {
  torch::nn::Linear stem = linear("stem", 4, 8);
  torch::nn::Linear left = linear("left", 8, 2);
  torch::nn::Linear right = linear("right", 8, 2);
  torch::nn::Linear never = linear("never", 8, 2);

  torch::Tensor forward(torch::Tensor x, bool go_left) {
    x = torch::relu(stem(x));
    return go_left ? left(x) : right(x);
  }
};

/// A net with running statistics, and with `inputs`, `hidden` and `outputs`
/// channels.
struct NormNet : LayeredNet {
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;

  NormNet(int64_t inputs, int64_t hidden, int64_t outputs)
      : first(linear("first", inputs, hidden)),
        norm(add("norm", torch::nn::BatchNorm1d(hidden))),
        last(linear("last", hidden, outputs)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::relu(norm(first(x))));
  }
};

/// An embedding and, in some forward passes, an embedding bag, both with sparse
/// gradients.
struct WordNetImpl : LayeredNet {
  torch::nn::Embedding table = add(
      "table",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
  torch::nn::EmbeddingBag bag = add(
      "bag",
      torch::nn::EmbeddingBag(
          torch::nn::EmbeddingBagOptions(6, 3).sparse(true).mode(torch::kSum)));
  torch::nn::Linear head = linear("head", 3, 2);

  torch::Tensor forward(const torch::Tensor& words, bool with_bag) {
    auto x = table(words);
    if (with_bag) {
      x = x + bag(words.remainder(6).unsqueeze(0));
    }
    return head(x);
  }
};
TORCH_MODULE(WordNet);

/// A different batch on each rank and in each step.
inline torch::Tensor batch(
    const ProcessGroup& group,
    int64_t step,
    int64_t width) {
  torch::manual_seed(1000 * step + group.rank());
  return torch::randn({5, width});
}

/// Copies the values of parameters into a module of the same structure.
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

inline void set_requires_grad(const torch::nn::Module& net, bool value) {
  for (auto& parameter : net.parameters()) {
    parameter.set_requires_grad(value);
  }
}

inline void reset_gradients(const torch::nn::Module& net) {
  for (auto& parameter : net.parameters()) {
    parameter.mutable_grad().reset();
  }
}

inline std::vector<const void*> memory_of_gradients(
    const torch::nn::Module& net) {
  std::vector<const void*> memory;
  for (const auto& parameter : net.parameters()) {
    memory.push_back(parameter.grad().const_data_ptr());
  }
  return memory;
}

/// The gradients that one process would compute from the ranks' local ones.
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

/// Whether two nets have the same parameters, bit for bit or according to
/// `same`.
inline bool same_parameters(
    const torch::nn::Module& a,
    const torch::nn::Module& b,
    bool (*same)(const at::Tensor&, const at::Tensor&) = torch::equal) {
  const auto left = a.parameters();
  const auto right = b.parameters();
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same);
}

/// Whether tensors are equal except for rounding, with the tolerances of
/// Python's `assertEqual`. The absolute tolerance allows for sums that nearly
/// cancel.
inline bool nearly_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kDouble ? at::allclose(a, b, 1e-7, 1e-7)
                                        : at::allclose(a, b, 1.3e-6, 1e-5);
}

/// Whether two nets' parameters are nearly equal.
inline bool nearly_equal(
    const torch::nn::Module& a,
    const torch::nn::Module& b) {
  return same_parameters(
      a, b, [](const auto& x, const auto& y) { return nearly_equal(x, y); });
}

/// Whether a tensor is bit-identical on all ranks.
inline bool equal_on_all(
    const ProcessGroup& group,
    const torch::Tensor& tensor) {
  const auto all = group.all_gather(tensor);
  return std::all_of(all.begin(), all.end(), [&](const auto& other) {
    return other.equal(tensor);
  });
}

/// Whether all parameters of a net are bit-identical on all ranks.
inline bool equal_on_all(
    const ProcessGroup& group,
    const torch::nn::Module& net) {
  const auto all = net.parameters();
  return std::all_of(all.begin(), all.end(), [&](const auto& parameter) {
    return equal_on_all(group, parameter);
  });
}

} // namespace ddp::test
