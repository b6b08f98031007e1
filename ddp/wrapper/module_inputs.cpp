#include <ddp/internal/module_inputs.h>

#include <ddp/internal/check.h>
#include <ddp/module_state.h>

#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <algorithm>

namespace ddp::detail {

void MoveTo::operator()(at::Tensor& tensor) const {
  if (tensor.defined() && tensor.device() != device) {
    // The host need not wait for a copy that it does not read.
    const bool non_blocking = !device.is_cpu();
    tensor = tensor.to(device, non_blocking);
  }
}

void throw_not_copyable(const std::type_info& type, c10::Device device) {
  DDP_THROW(
      ValueError,
      "an argument of forward, a {}, has tensors that are not on the module's "
      "device {}, and cannot be copied: move its tensors there before forward, "
      "or disable ReducerOptions().move_inputs",
      c10::demangle(type.name()),
      device);
}

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

void check_devices(
    const torch::nn::Module& module,
    const std::vector<StrayTensor>& strays,
    int64_t rank) {
  for (const auto& stray : strays) {
    if (takes_inputs_on(module, stray.device)) {
      continue;
    }
    const auto parameters = unique_parameters(module);
    DDP_THROW(
        ValueError,
        "rank {}: argument {} of forward (its tensor {}) is on {}, but the "
        "parameter {} and all others are on {}: move the argument, or "
        "move the module before you wrap it",
        rank,
        stray.argument,
        stray.tensor,
        stray.device,
        parameters.names[0],
        parameters.tensors[0].device());
  }
}

} // namespace ddp::detail
