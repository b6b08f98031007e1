#include <ddp/reducer/core/gradient_hook.h>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

struct GradientHook : autograd::PostAccumulateGradHook {
  void operator()(const autograd::Variable& tensor) override {
    if (earlier) {
      (*earlier)(tensor);
    }
    listener->on_gradient(
        index, autograd::impl::get_autograd_meta(tensor)->grad_);
  }

  GradientListener* listener = nullptr;
  std::shared_ptr<GradientListener> owned; // may be null
  size_t index = 0;
  std::unique_ptr<PostAccumulateGradHook> earlier;
};

GradientHook* find(const at::Tensor& parameter) {
  auto* meta = autograd::impl::get_autograd_meta(parameter);
  return meta ? dynamic_cast<GradientHook*>(meta->post_acc_grad_hooks_.get())
              : nullptr;
}

} // namespace

void add_gradient_hook(
    const at::Tensor& parameter,
    GradientListener& listener,
    size_t index) {
  auto& slot = autograd::impl::materialize_autograd_meta(parameter)
                   ->post_acc_grad_hooks_;
  auto hook = std::make_unique<GradientHook>();
  hook->listener = &listener;
  hook->index = index;
  hook->earlier = std::move(slot);
  slot = std::move(hook);
}

void add_gradient_hook(
    const at::Tensor& parameter,
    std::shared_ptr<GradientListener> listener,
    size_t index) {
  add_gradient_hook(parameter, *listener, index);
  find(parameter)->owned = std::move(listener);
}

void remove_gradient_hook(
    const at::Tensor& parameter,
    const GradientListener& listener) {
  auto* hook = find(parameter);
  if (hook && hook->listener == &listener) {
    auto earlier = std::move(hook->earlier);
    autograd::impl::set_post_acc_grad_hooks(parameter, std::move(earlier));
  }
}

GradientListener* gradient_listener(const at::Tensor& parameter) {
  const auto* hook = find(parameter);
  return hook ? hook->listener : nullptr;
}

} // namespace ddp::detail
