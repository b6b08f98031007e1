#include <ddp/internal/module_inputs.h>

#include <ddp/internal/check.h>
#include <ddp/module_state.h>
#include <ddp/wrapper/input_device.h>

#include <c10/util/Type.h>
#include <torch/nn/module.h>

namespace ddp::detail {

void MoveTo::operator()(at::Tensor& tensor) const {
  if (tensor.defined() && tensor.device() != device) {
    // The host does not wait for a copy that it will not read itself.
    const bool non_blocking = !device.is_cpu();
    tensor = tensor.to(device, non_blocking);
  }
}

void throw_not_copyable(const std::type_info& type, c10::Device device) {
  DDP_THROW(
      ValueError,
      "an argument of forward, a {}, has tensors that are not on the module's "
      "device {}, and cannot be copied: move its tensors there before "
      "forward, or turn ReducerOptions().move_inputs off",
      c10::demangle(type.name()),
      device);
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
        "parameter {} and all others are on {}: move the argument, or the "
        "module before it is wrapped",
        rank,
        stray.argument,
        stray.tensor,
        stray.device,
        parameters.names[0],
        parameters.tensors[0].device());
  }
}

} // namespace ddp::detail
