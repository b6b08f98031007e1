#pragma once

#include <ddp/internal/check.h>

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace ddp::detail {

/// The types that belong to an optimizer.
template <typename Options_, typename State_>
struct OptimizerKind {
  using Options = Options_;
  using State = State_;
};

/// Calls `function(OptimizerKind)` for the type of `optimizer`.
template <typename Function>
void with_kind_of(
    const torch::optim::Optimizer& optimizer,
    const Function& function) {
  namespace optim = torch::optim; // ddp::Adam also exists
  if (dynamic_cast<const optim::SGD*>(&optimizer)) {
    function(OptimizerKind<optim::SGDOptions, optim::SGDParamState>());
  } else if (dynamic_cast<const optim::Adam*>(&optimizer)) {
    function(OptimizerKind<optim::AdamOptions, optim::AdamParamState>());
  } else if (dynamic_cast<const optim::AdamW*>(&optimizer)) {
    function(OptimizerKind<optim::AdamWOptions, optim::AdamWParamState>());
  } else if (dynamic_cast<const optim::RMSprop*>(&optimizer)) {
    function(OptimizerKind<optim::RMSpropOptions, optim::RMSpropParamState>());
  } else if (dynamic_cast<const optim::Adagrad*>(&optimizer)) {
    function(OptimizerKind<optim::AdagradOptions, optim::AdagradParamState>());
  } else if (dynamic_cast<const optim::LBFGS*>(&optimizer)) {
    function(OptimizerKind<optim::LBFGSOptions, optim::LBFGSParamState>());
  } else {
    DDP_THROW(
        NotImplementedError,
        "the state of an optimizer of type {} cannot be saved or loaded; "
        "TrainingState::add accepts a class of the program that has "
        "state_dict() and load_state_dict(state)",
        c10::demangle(typeid(optimizer).name()));
  }
}

// Visits each field by Python's name, for saving and for loading:
// `fields(name, value)`, `fields.optional(name, value)` for a value that may be
// missing or None, `fields.step(name, value)` for a count that Python keeps in
// a tensor, and `fields.fixed(name, value)` for an option that LibTorch lacks.

template <typename Fields>
void visit_fields(torch::optim::SGDOptions& options, Fields& fields) {
  fields("lr", options.lr());
  fields("momentum", options.momentum());
  fields("dampening", options.dampening());
  fields("weight_decay", options.weight_decay());
  fields("nesterov", options.nesterov());
  fields.fixed("maximize", false);
}
template <typename Fields>
void visit_fields(torch::optim::SGDParamState& state, Fields& fields) {
  fields.optional("momentum_buffer", state.momentum_buffer());
}

template <typename Options, typename Fields>
void visit_adam_options(Options& options, bool decoupled, Fields& fields) {
  fields("lr", options.lr());
  fields("betas", options.betas());
  fields("eps", options.eps());
  fields("weight_decay", options.weight_decay());
  fields("amsgrad", options.amsgrad());
  fields.fixed("maximize", false);
  fields.fixed("decoupled_weight_decay", decoupled);
}
template <typename State, typename Fields>
void visit_adam_state(State& state, Fields& fields) {
  fields.step("step", state.step());
  fields("exp_avg", state.exp_avg());
  fields("exp_avg_sq", state.exp_avg_sq());
  fields.optional("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <typename Fields>
void visit_fields(torch::optim::AdamOptions& options, Fields& fields) {
  visit_adam_options(options, false, fields);
}
template <typename Fields>
void visit_fields(torch::optim::AdamParamState& state, Fields& fields) {
  visit_adam_state(state, fields);
}

template <typename Fields>
void visit_fields(torch::optim::AdamWOptions& options, Fields& fields) {
  visit_adam_options(options, true, fields);
}
template <typename Fields>
void visit_fields(torch::optim::AdamWParamState& state, Fields& fields) {
  visit_adam_state(state, fields);
}

template <typename Fields>
void visit_fields(torch::optim::RMSpropOptions& options, Fields& fields) {
  fields("lr", options.lr());
  fields("momentum", options.momentum());
  fields("alpha", options.alpha());
  fields("eps", options.eps());
  fields("centered", options.centered());
  fields("weight_decay", options.weight_decay());
  fields.fixed("maximize", false);
}
template <typename Fields>
void visit_fields(torch::optim::RMSpropParamState& state, Fields& fields) {
  fields.step("step", state.step());
  fields("square_avg", state.square_avg());
  fields.optional("momentum_buffer", state.momentum_buffer());
  fields.optional("grad_avg", state.grad_avg());
}

template <typename Fields>
void visit_fields(torch::optim::AdagradOptions& options, Fields& fields) {
  fields("lr", options.lr());
  fields("lr_decay", options.lr_decay());
  fields("eps", options.eps());
  fields("weight_decay", options.weight_decay());
  fields("initial_accumulator_value", options.initial_accumulator_value());
  fields.fixed("maximize", false);
}
template <typename Fields>
void visit_fields(torch::optim::AdagradParamState& state, Fields& fields) {
  fields.step("step", state.step());
  fields("sum", state.sum());
}

template <typename Fields>
void visit_fields(torch::optim::LBFGSOptions& options, Fields& fields) {
  fields("lr", options.lr());
  fields("max_iter", options.max_iter());
  fields("max_eval", options.max_eval());
  fields("tolerance_grad", options.tolerance_grad());
  fields("tolerance_change", options.tolerance_change());
  fields("history_size", options.history_size());
  fields("line_search_fn", options.line_search_fn());
}
template <typename Fields>
void visit_fields(torch::optim::LBFGSParamState& state, Fields& fields) {
  fields("func_evals", state.func_evals());
  fields("n_iter", state.n_iter());
  fields.optional("al", state.al());
  fields.optional("d", state.d());
  fields.optional("t", state.t());
  fields.optional("old_dirs", state.old_dirs());
  fields.optional("old_stps", state.old_stps());
  fields.optional("ro", state.ro());
  fields.optional("H_diag", state.H_diag());
  fields.optional("prev_flat_grad", state.prev_flat_grad());
  fields.optional("prev_loss", state.prev_loss());
}

/// Whether an optimizer can use the state: SGD cannot use a momentum of None,
/// which Python saves before the first step with momentum.
template <typename State>
bool is_started(const State& /*state*/) {
  return true;
}
inline bool is_started(const torch::optim::SGDParamState& state) {
  return state.momentum_buffer().defined();
}

/// Whether a state's tensors have the shape of their parameter; in LBFGS, they
/// belong to all parameters together.
template <typename State>
inline constexpr bool has_shape_of_parameter_v = true;
template <>
inline constexpr bool has_shape_of_parameter_v<torch::optim::LBFGSParamState> =
    false;

/// An empty tensor with the dtype of LBFGS's state: all parameters' dtypes,
/// promoted.
inline at::Tensor empty_like_flat(const std::vector<at::Tensor>& parameters) {
  auto dtype = parameters[0].scalar_type();
  for (const auto& parameter : parameters) {
    dtype = c10::promoteTypes(dtype, parameter.scalar_type());
  }
  return at::empty({0}, parameters[0].options().dtype(dtype));
}

} // namespace ddp::detail
