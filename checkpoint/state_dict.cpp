#include <checkpoint/state_dict.h>
#include <ddp/module_state.h>
#include <torch/nn/module.h>

namespace ddp::detail {
namespace {

void append(
    const torch::OrderedDict<std::string, at::Tensor>& tensors,
    const std::string& prefix,
    StateDict& state) {
  for (const auto& item : tensors) {
    if (item.value().defined()) {
      state.insert(prefix + item.key(), item.value());
    }
  }
}

void append_module(
    const torch::nn::Module& module,
    const std::string& prefix,
    StateDict& state) {
  const auto& plain = unwrapped(module);
  append(plain.named_parameters(/*recurse=*/false), prefix, state);
  append(plain.named_buffers(/*recurse=*/false), prefix, state);
  for (const auto& child : plain.named_children()) {
    append_module(*child.value(), prefix + child.key() + ".", state);
  }
}

} // namespace

const torch::nn::Module& unwrapped(const torch::nn::Module& module) {
  const auto* plain = &module;
  while (const auto* wrapper = dynamic_cast<const WrappedModule*>(plain)) {
    plain = &wrapper->wrapped();
  }
  return *plain;
}

torch::nn::Module& unwrapped(torch::nn::Module& module) {
  return const_cast<torch::nn::Module&>(unwrapped(std::as_const(module)));
}

StateDict named_state(const torch::nn::Module& module) {
  StateDict state;
  append_module(module, "", state);
  return state;
}

StateDict detached_state(const torch::nn::Module& module) {
  auto state = named_state(module);
  for (auto& tensor : state) {
    tensor.value() = tensor.value().detach();
  }
  return state;
}

} // namespace ddp::detail
