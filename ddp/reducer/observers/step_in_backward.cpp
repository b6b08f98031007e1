#include <ddp/reducer/observers/step_in_backward.h>

#include <ddp/internal/check.h>
#include <ddp/join.h>
#include <ddp/process_group/agreement/same_on_all.h>
#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/support/optimizer_text.h>

#include <torch/optim/lbfgs.h>

#include <mutex>
#include <set>

namespace ddp::detail {
namespace {

std::mutex mutex;
std::multiset<const torch::optim::Optimizer*> stepped_optimizers;

/// Records whether a Reducer steps this optimizer in backward.
void set_stepped(const torch::optim::Optimizer& optimizer, bool stepped) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (stepped) {
    stepped_optimizers.insert(&optimizer);
    return;
  }
  const auto found = stepped_optimizers.find(&optimizer);
  if (found != stepped_optimizers.end()) {
    stepped_optimizers.erase(found);
  }
}

bool has_some_of(
    const torch::optim::Optimizer& optimizer,
    const std::vector<ParameterState>& parameters) {
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& theirs : group.params()) {
      for (const auto& ours : parameters) {
        if (theirs.is_same(ours.tensor)) {
          return true;
        }
      }
    }
  }
  return false;
}

/// The gradients of another Reducer's parameters may not be averaged yet.
void check_no_other_reducer(
    const torch::optim::Optimizer& optimizer,
    const std::vector<ParameterState>& parameters) {
  const GradientListener* own = nullptr;
  for (const auto& parameter : parameters) {
    own = own ? own : gradient_listener(parameter.tensor);
  }
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto* listener = gradient_listener(parameter);
      DDP_CHECK_VALUE(
          !listener || listener == own || !listener->is_of_use(),
          "step_in_backward: the optimizer has parameters of another Reducer, "
          "which would be stepped too early: create an optimizer for each "
          "Reducer, or call its step() after backward");
    }
  }
}

} // namespace

StepInBackward::StepInBackward(
    std::vector<ParameterState>& parameters,
    GradientReduction& reduction,
    bool at_once)
    : parameters_(parameters), reduction_(reduction), at_once_(at_once) {}

StepInBackward::~StepInBackward() {
  if (optimizer_) {
    set_stepped(*optimizer_, false);
  }
}

void StepInBackward::attach(
    torch::optim::Optimizer& optimizer,
    const ProcessGroup& group) {
  DDP_CHECK_VALUE(
      !optimizer_ || optimizer_ == &optimizer,
      "step_in_backward: the Reducer already steps another optimizer: use "
      "parameter groups of one optimizer; for optimizers of different classes, "
      "or to change the optimizer, construct a Reducer for each");
  DDP_CHECK_VALUE(
      !dynamic_cast<torch::optim::LBFGS*>(&optimizer),
      "step_in_backward: LBFGS is not supported, since its step uses all "
      "parameters at once: call its step() after backward");
  DDP_CHECK_VALUE(
      !dynamic_cast<Joinable*>(&optimizer),
      "step_in_backward: this optimizer communicates in its step, as "
      "ZeroRedundancyOptimizer does: call its step() after backward");
  DDP_CHECK_VALUE(
      has_some_of(optimizer, parameters_),
      "step_in_backward: the optimizer has none of the Reducer's parameters");
  check_no_other_reducer(optimizer, parameters_);
  check_same_on_all(group, "step_in_backward", describe(optimizer));
  if (!optimizer_) {
    optimizer_ = &optimizer;
    set_stepped(optimizer, true);
  }
}

void StepInBackward::on_all_launched(const Reduction& reduction) {
  steps_buckets_ =
      optimizer_ && at_once_ && reduction.unused.empty(); // none is restored
  has_inputs_ = reduction.has_inputs;
}

PartialStep& StepInBackward::step() {
  if (!step_) {
    check_no_other_reducer(*optimizer_, parameters_); // one constructed later
    step_ = std::make_unique<PartialStep>(*optimizer_);
  }
  return *step_;
}

void StepInBackward::on_bucket_done(const Bucket& bucket) {
  if (steps_buckets_) {
    for (const size_t index : bucket.indices) {
      reduction_.populate_grad(parameters_[index]);
    }
    step().step(bucket.content.parameters);
  }
}

/// Without inputs, gradients of other parameters are of an earlier step.
void StepInBackward::on_grads_populated() {
  if (!optimizer_) {
    return;
  }
  if (has_inputs_) {
    step().step_rest();
  } else {
    std::vector<at::Tensor> own;
    for (const auto& parameter : parameters_) {
      own.push_back(parameter.tensor);
    }
    step().step(own);
  }
  step_.reset();
}

bool is_stepped_in_backward(const torch::optim::Optimizer& optimizer) {
  const std::lock_guard<std::mutex> lock(mutex);
  return stepped_optimizers.count(&optimizer) > 0;
}

} // namespace ddp::detail
