#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace ddp::detail {

/// Throws `c10::Error` if `set_random_state` would throw; changes nothing.
void check_random_state(
    const torch::OrderedDict<std::string, at::Tensor>& state);

} // namespace ddp::detail
