#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ddp::detail {

/// Checks a state as `load_optimizer_state` does; what it returns puts it in.
std::function<void()> plan_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

} // namespace ddp::detail
