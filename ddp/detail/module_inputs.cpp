#include <ddp/detail/module_inputs.h>

#include <ddp/module_state.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <algorithm>

namespace ddp::detail {
namespace {

bool any_on(const std::vector<at::Tensor>& tensors, c10::Device device) {
  return std::any_of(
      tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.device() == device;
      });
}

bool all_on(const std::vector<at::Tensor>& tensors, c10::Device device) {
  return std::all_of(
      tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.device() == device;
      });
}

} // namespace

void MoveTo::operator()(at::Tensor& tensor) const {
  if (tensor.defined() && tensor.device() != device) {
    // The host does not wait for a copy that it will not read itself.
    const bool non_blocking = !device.is_cpu();
    tensor = tensor.to(device, non_blocking);
  }
}

void throw_not_copyable(const std::type_info& type, c10::Device device) {
  C10_THROW_ERROR(
      ValueError,
      c10::str(
          "an argument of forward, a ",
          c10::demangle(type.name()),
          ", has tensors that are not on the module's device ",
          device,
          ", and cannot be copied: move its tensors there before forward, or "
          "turn ReducerOptions().move_inputs off"));
}

void check_devices(
    const torch::nn::Module& module,
    const std::vector<StrayTensor>& strays,
    int64_t rank) {
  const auto parameters = unique_parameters(module);
  if (parameters.tensors.empty()) {
    return;
  }
  const auto device = parameters.tensors[0].device();
  if (!all_on(parameters.tensors, device)) {
    return;
  }
  const auto buffers = unique_buffers(module);
  for (const auto& stray : strays) {
    TORCH_CHECK_VALUE(
        stray.device == device || any_on(buffers.tensors, stray.device),
        "rank ",
        rank,
        ": argument ",
        stray.argument,
        " of forward (its tensor ",
        stray.tensor,
        ") is on ",
        stray.device,
        ", but the parameter ",
        parameters.names[0],
        " and all others are on ",
        device,
        ": move the argument, or the module before it is wrapped");
  }
}

} // namespace ddp::detail
