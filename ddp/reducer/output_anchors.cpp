#include <ddp/internal/output_anchors.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

/// A copy of a tensor that requires a gradient, and propagates none.
struct RequireGradient : autograd::Function<RequireGradient> {
  static at::Tensor forward(
      autograd::AutogradContext* /*context*/,
      const at::Tensor& tensor,
      const at::Tensor& /*source*/) {
    return tensor.clone();
  }

  static autograd::variable_list backward(
      autograd::AutogradContext* /*context*/,
      const autograd::variable_list& /*gradients*/) {
    return {at::Tensor(), at::Tensor()};
  }
};

/// Whether this backward pass accumulates the gradient of a reduced leaf.
bool accumulates(const std::function<bool(const at::Tensor&)>& is_reduced) {
  const auto* selection = autograd::get_current_graph_task_exec_info();
  return !selection || selection->empty() ||
      std::any_of(selection->begin(), selection->end(), [&](const auto& entry) {
        const auto* node = dynamic_cast<autograd::AccumulateGrad*>(entry.first);
        return node && entry.second.needed_ && is_reduced(node->variable);
      });
}

bool can_require_gradient(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

} // namespace

void OutputAnchors::operator()(at::Tensor& output) {
  if (output.defined()) {
    replaceable_.push_back(&output);
  }
}

void OutputAnchors::operator()(const at::Tensor& output) {
  if (output.defined()) {
    fixed_.push_back(output);
  }
}

void OutputAnchors::attach(
    const std::function<void()>& on_backward,
    const std::function<bool(const at::Tensor& leaf)>& is_reduced) const {
  const auto hook = [&](const at::Tensor& tensor) {
    tensor.register_hook([on_backward, is_reduced](const at::Tensor&) {
      if (accumulates(is_reduced)) {
        on_backward();
      }
    });
  };
  bool none = true;
  for (const auto& tensor : fixed_) {
    if (tensor.requires_grad()) {
      hook(tensor);
      none = false;
    }
  }
  for (auto* tensor : replaceable_) {
    if (tensor->requires_grad()) {
      if (tensor->is_leaf()) { // a leaf keeps its hooks after this pass
        *tensor = at::alias(*tensor);
      }
      hook(*tensor);
      none = false;
    }
  }
  for (auto* tensor : replaceable_) {
    if (none && can_require_gradient(*tensor)) {
      const auto source = at::empty({0}, tensor->options());
      *tensor = RequireGradient::apply(*tensor, source.requires_grad_());
      hook(*tensor);
    }
  }
}

} // namespace ddp::detail
