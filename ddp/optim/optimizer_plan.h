#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ddp::detail {

/// In the state of one rank's parameters: that rank, and each one's owner.
constexpr const char* kShard = "shard";

/// Checks a state as `load_optimizer_state` does; what it returns puts it in.
std::function<void()> plan_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

} // namespace ddp::detail
