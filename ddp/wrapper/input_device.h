#pragma once

#include <c10/core/Device.h>

namespace torch::nn {
class Module;
}

namespace ddp::detail {

/// Whether tensors on `device` may be arguments of a forward: not if all
/// parameters of `module` are on another one and no buffer is on `device`.
bool takes_inputs_on(const torch::nn::Module& module, c10::Device device);

} // namespace ddp::detail
