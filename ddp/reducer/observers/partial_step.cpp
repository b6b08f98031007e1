#include <ddp/reducer/observers/partial_step.h>

#include <torch/optim/optimizer.h>

#include <utility>

namespace ddp::detail {

PartialStep::PartialStep(
    torch::optim::Optimizer& optimizer,
    std::function<void()> call)
    : optimizer_(optimizer), call_(std::move(call)) {
  for (auto& group : optimizer_.param_groups()) {
    for (const auto& parameter : group.params()) {
      left_.emplace(parameter.unsafeGetTensorImpl(), lists_.size());
    }
    lists_.push_back(std::exchange(group.params(), {}));
  }
}

PartialStep::~PartialStep() {
  for (size_t i = 0; i < lists_.size(); ++i) {
    optimizer_.param_groups()[i].params() = std::move(lists_[i]);
  }
}

void PartialStep::step(const std::vector<at::Tensor>& parameters) {
  auto& groups = optimizer_.param_groups();
  for (const auto& parameter : parameters) {
    const auto found = left_.find(parameter.unsafeGetTensorImpl());
    if (found != left_.end()) {
      groups[found->second].params().push_back(parameter);
      left_.erase(found);
    }
  }
  if (call_) {
    call_();
  } else {
    optimizer_.step();
  }
  for (auto& group : groups) {
    group.params().clear();
  }
}

void PartialStep::step_rest() {
  if (left_.empty()) {
    return;
  }
  std::vector<at::Tensor> rest;
  for (const auto& list : lists_) {
    rest.insert(rest.end(), list.begin(), list.end());
  }
  step(rest);
}

} // namespace ddp::detail
