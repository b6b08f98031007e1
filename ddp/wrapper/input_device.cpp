#include <ddp/wrapper/input_device.h>

#include <ddp/module_state.h>

#include <torch/nn/module.h>

#include <algorithm>

namespace ddp::detail {

bool takes_inputs_on(const torch::nn::Module& module, c10::Device device) {
  const auto parameters = unique_parameters(module).tensors;
  const auto buffers = unique_buffers(module).tensors;
  const auto is_here = [device](const at::Tensor& tensor) {
    return tensor.device() == device;
  };
  const auto is_with_first = [&](const at::Tensor& tensor) {
    return tensor.device() == parameters[0].device();
  };
  return parameters.empty() || is_here(parameters[0]) ||
      !std::all_of(parameters.begin(), parameters.end(), is_with_first) ||
      std::any_of(buffers.begin(), buffers.end(), is_here);
}

} // namespace ddp::detail
