#include <ddp/detail/checked_tensors.h>

namespace ddp::detail {

NamedTensors checked_tensors(
    const torch::nn::Module& module,
    const VerificationOptions& options) {
  const auto parameters = unique_parameters(module);
  auto checked = parameters;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    checked.names.push_back(name);
    checked.tensors.push_back(tensor);
  };
  if (options.gradients()) {
    for (size_t i = 0; i < parameters.tensors.size(); ++i) {
      add("the gradient of " + parameters.names[i],
          parameters.tensors[i].grad());
    }
  }
  if (options.buffers()) {
    const auto buffers = unique_buffers(module);
    for (size_t i = 0; i < buffers.tensors.size(); ++i) {
      add(buffers.names[i], buffers.tensors[i]);
    }
  }
  return checked;
}

std::string checked_nouns(const VerificationOptions& options) {
  if (options.gradients() && options.buffers()) {
    return "parameters, gradients and buffers";
  }
  if (options.gradients()) {
    return "parameters and gradients";
  }
  return options.buffers() ? "parameters and buffers" : "parameters";
}

} // namespace ddp::detail
