#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/ordered_dict.h>

#include <string>
#include <vector>

namespace ddp::detail {

/// Throws `c10::Error` if `set_random_state` would throw; changes nothing.
void check_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

/// Returns the device whose generator takes the state of each device in
/// `saved`: the same device, or, if `saved` has one GPU and this process uses
/// one, this GPU, since a rank's GPU may have another index than before.
std::vector<c10::Device> generators_for(
    const std::vector<c10::Device>& saved,
    const std::vector<c10::DeviceIndex>& used_gpus);

} // namespace ddp::detail
