#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/export.h>

#include <functional>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ddp {

/// The state of an optimizer in the layout of Python's
/// `Optimizer.state_dict()`:
///
///     {"state": {0: {"exp_avg": tensor, ...}, ...},
///      "param_groups": [{"lr": 0.1, ..., "params": [0, 1, ...]}]}
///
/// Dictionaries keep the order of insertion; parameters are counted through all
/// groups, and those that were never updated have no state. Tensors are those
/// of the optimizer, not copies. For torch::optim::SGD, Adam, AdamW, RMSprop,
/// Adagrad and LBFGS; throws `c10::NotImplementedError` for another. Not
/// collective.
DDP_API c10::IValue optimizer_state(const torch::optim::Optimizer& optimizer);

/// Puts `optimizer` into a state that `optimizer_state`, or Python's
/// `state_dict()`, returned: values and options, such as the learning rate.
///
/// Tensors are copied to dtype and device of their parameters. What only
/// Python's optimizers have (`foreach`, `fused`, ...) is passed over, but for
/// options that change the result (`maximize`): throws `c10::ValueError` where
/// these are on, and where groups, numbers of parameters or shapes differ or
/// something is missing; then the optimizer has not changed. Not collective.
DDP_API void load_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);

namespace detail {
/// Checks a state as `load_optimizer_state` does; what it returns puts it in.
DDP_API std::function<void()> plan_optimizer_state(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state);
} // namespace detail

} // namespace ddp
