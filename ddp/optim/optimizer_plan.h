#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ddp::detail {

/// A key in the state of one rank's parameters. The value contains this rank
/// and the owner of each parameter.
constexpr const char* kShard = "shard";

/// Performs the checks of `load_optimizer_state` on `state`, and returns a
/// function that loads `state`.
std::function<void()> plan_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

} // namespace ddp::detail
