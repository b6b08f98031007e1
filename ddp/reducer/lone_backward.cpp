#include <ddp/reducer/lone_backward.h>

#include <ddp/reducer/core/end_of_backward.h>
#include <ddp/reducer/observers/unmanaged_leaves.h>

namespace ddp::detail {

LoneBackward::LoneBackward(
    const std::string& name,
    std::vector<ParameterState>& parameters,
    Synchronization& synchronization,
    ObserverList& observers,
    bool looks_always)
    : name_(name),
      parameters_(parameters),
      sync_(synchronization),
      observers_(observers),
      looks_always_(looks_always) {
  current_.of_all = false; // no comparison with other ranks
}

LoneBackward::~LoneBackward() {
  if (hooks_removed_) {
    for (const auto& parameter : parameters_) {
      set_managed_without_hook(parameter.tensor, false);
    }
  }
}

void LoneBackward::on_gradient(size_t index, at::Tensor& /*gradient*/) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_idle = !open_ || failed_;
  if (is_idle && !sync_.decides_now()) {
    sync_.accumulated();
    return;
  }
  if (is_idle) {
    open();
  }
  ++parameters_[index].arrivals;
}

void LoneBackward::open() {
  failed_ = true; // unless all of this succeeds
  for (auto& parameter : parameters_) {
    parameter.arrivals = 0; // the last pass may have thrown
  }
  observers_.begin(current_);
  observers_.tell(&ReductionObserver::on_backward);
  EndOfBackward::call(
      name_,
      owner_,
      [this] { finish(); },
      [this] { failed_ = true; }); // this thread may hold the lock
  open_ = true;
  failed_ = false;
}

void LoneBackward::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
  try {
    if (looks()) {
      look();
    }
    observers_.tell(&ReductionObserver::on_all_launched, current_);
    observers_.tell(&ReductionObserver::on_reduced);
    observers_.tell(&ReductionObserver::on_grads_populated);
  } catch (...) {
    failed_ = true;
    observers_.tell(&ReductionObserver::on_failed);
    throw;
  }
  sync_.reduced();
  to_look_ -= to_look_ > 0;
  if (!has_hooks() && !hooks_removed_) {
    hooks_removed_ = true;
    for (const auto& parameter : parameters_) {
      remove_gradient_hook(parameter.tensor, *this);
      set_managed_without_hook(parameter.tensor, true);
    }
  }
}

void LoneBackward::finish_backward() {
  if (!sync_.is_on() || failed_) {
    return;
  }
  if (sync_.finish(kLooks - to_look_) && has_hooks()) {
    for (auto& parameter : parameters_) {
      parameter.arrivals = parameter.tensor.grad().defined();
    }
    observers_.begin(current_);
    finish();
  }
  sync_.forget_reduced();
}

void LoneBackward::look() {
  current_.unused.clear();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    const auto& grad = parameter.tensor.grad();
    if (parameter.arrivals == 0) {
      current_.unused.push_back(i);
    } else if (grad.defined()) {
      observers_.check_gradient(parameter, grad);
    }
  }
  observers_.tell(&ReductionObserver::on_computed, current_);
}

} // namespace ddp::detail
