#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

namespace torch::optim {
class ReduceLROnPlateauScheduler;
} // namespace torch::optim

namespace ddp::detail {

/// What changes in the scheduler from step to step, by the names of Python's
/// ReduceLROnPlateau.
c10::IValue plateau_state(torch::optim::ReduceLROnPlateauScheduler& scheduler);

/// Checks such a state; what it returns puts it in. Throws `c10::ValueError`
/// for another, by the part's `name`.
std::function<void()> plan_plateau_state(
    const std::string& name,
    torch::optim::ReduceLROnPlateauScheduler& scheduler,
    const c10::IValue& state);

} // namespace ddp::detail
