#include <ddp/reducer/reducer_impl.h>

// A group of one has nothing to reduce: the gradients are what they were.

namespace ddp {

/// Whether a group of one, which has nothing to reduce, still wants gradients.
bool ReducerImpl::looks_alone() const {
  return checked_alone_ > 0 || options_.check_finite() ||
      observers_.step_in_backward.optimizer();
}

void ReducerImpl::finish_alone() {
  open_ = false;
  check_alone();
  observers_.list.tell(&Observer::on_all_launched, current_);
  observers_.list.tell(&Observer::on_reduced);
  observers_.list.tell(&Observer::on_handed_out);
  checked_alone_ -= checked_alone_ > 0;
  if (!looks_alone()) {
    detach();
  }
}

/// What would be an error in a larger group is one here, so that a program that
/// runs alone also runs on several ranks.
void ReducerImpl::check_alone() {
  if (checked_alone_ == 0 && !options_.check_finite()) {
    return;
  }
  current_.unused.clear(); // where the last one threw
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    const auto& grad = parameter.tensor.grad();
    if (std::exchange(parameter.arrivals, 0) == 0) {
      current_.unused.push_back(i);
    } else if (grad.defined()) {
      observers_.list.look_at(parameter, grad);
    }
  }
  observers_.list.tell(&Observer::on_computed, current_);
}

} // namespace ddp
