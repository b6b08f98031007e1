#pragma once

#include <torch/optim/optimizer.h>

#include <string>

namespace ddp::detail {

/// Returns text such as "torch::optim::Adam with learning rates 0.1, 0.01".
std::string describe(const torch::optim::Optimizer& optimizer);

/// Same as above, with the parameters: "... of Float [3, 4], Float [3]".
std::string describe_with_parameters(const torch::optim::Optimizer& optimizer);

} // namespace ddp::detail
