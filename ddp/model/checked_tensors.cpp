#include <ddp/model/checked_tensors.h>

namespace ddp::detail {

NamedTensors checked_tensors(
    const torch::nn::Module& module,
    const VerificationOptions& options) {
  const auto parameters = unique_parameters(module);
  auto checked = parameters;
  if (options.gradients()) {
    for (size_t i = 0; i < parameters.tensors.size(); ++i) {
      checked.append(
          "the gradient of " + parameters.names[i],
          parameters.tensors[i].grad());
    }
  }
  if (options.buffers()) {
    checked.append(unique_buffers(module));
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
