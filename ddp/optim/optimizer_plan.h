#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ddp::detail {

/// The key in a state of one rank's parameters; its value has this rank and the
/// owner of each parameter.
constexpr const char* kShard = "shard";

/// Checks a state as `load_optimizer_state` does, and returns a function that
/// loads it.
std::function<void()> plan_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

} // namespace ddp::detail
