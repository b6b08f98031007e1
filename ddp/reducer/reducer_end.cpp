#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/observers/replica_checksums.h>

// The reports at the end of a Reducer.

namespace ddp {
namespace {

/// Listens to parameters whose Reducer has ended. If that Reducer reduced
/// nothing, the first gradient warns.
class Orphans final : public detail::GradientListener {
 public:
  Orphans(std::vector<std::string> names, bool is_silent)
      : names_(std::move(names)), told_(is_silent) {}

  void on_gradient(size_t index, at::Tensor& gradient) override {
    if (gradient.defined() && !told_.exchange(true)) {
      TORCH_WARN(
          "ddp: the gradient of ",
          names_[index],
          " is not averaged over ranks: its Reducer was destroyed before it "
          "had reduced anything. Was it a temporary (`ddp::Reducer(net, "
          "group);` without a name), or local to a function that has "
          "returned? Keep the Reducer until training ends");
    }
  }

  bool is_of_use() const override {
    return false;
  }

 private:
  std::vector<std::string> names_;
  std::atomic<bool> told_;
};

} // namespace

void ReducerImpl::end() {
  if (detail::ProcessGroupImpl::of(group).is_forked_copy()) {
    return;
  }
  detach();
  report_unwinding();
  report_reduced_nothing();
  compare_replicas();
}

/// After a reduction, checkpoints detect whether ranks continue separately.
void ReducerImpl::report_reduced_nothing() {
  if ((lone_backward && lone_backward->has_looked()) ||
      std::uncaught_exceptions() > exceptions_at_construction_ ||
      !detail::ProcessGroupImpl::of(group).first_error.reason().empty()) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    names.push_back(parameter.name());
  }
  const auto orphans = std::make_shared<Orphans>(names, backward.steps() > 0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i].tensor;
    const auto* other = detail::gradient_listener(parameter);
    if (!other || !other->is_of_use()) { // else the next Reducer's
      detail::add_gradient_hook(parameter, orphans, i);
    }
  }
  if (backward.steps() > 0) {
    return;
  }
  // Several ranks compare their parameters instead.
  if (synchronization.has_accumulated() && group.size() == 1) {
    TORCH_WARN(
        "ddp: a Reducer ended without reducing anything: was each backward "
        "pass under no_sync()?");
  }
  if (observers.module.is_gone()) {
    TORCH_WARN(
        "ddp: a Reducer ended without reducing anything, and its module was "
        "destroyed. If the net was replaced (`net = Net();`) after the Reducer "
        "was constructed, the trained net's gradients were not averaged: "
        "construct the Reducer for the net that you train");
  }
}

/// If ranks trained together, they have the same parameters at the end. With a
/// communication hook they may average later.
void ReducerImpl::compare_replicas() {
  const auto& impl = detail::ProcessGroupImpl::of(group);
  if (!observers.compares_replicas || options.comm_hook() ||
      !backward.is_of_use() ||
      std::uncaught_exceptions() > exceptions_at_construction_ ||
      !impl.first_error.reason().empty()) {
    return;
  }
  const auto added =
      observers.module.added(options.known_leaves(), /*trained=*/true);
  bool trained = backward.steps() > 0 || !added.names.empty();
  uint64_t versions = 0;
  NamedTensors trainable;
  for (const auto& parameter : parameters) {
    if (!parameter.fits(parameter.tensor)) {
      return; // moved, converted or replaced
    }
    trained = trained || parameter.tensor.grad().defined();
    versions += parameter.tensor._version();
    if (parameter.trainable) {
      trainable.append(parameter.key, parameter.tensor);
    }
  }
  if (trained || versions != versions_at_start_) {
    trainable.append(added);
    detail::compare_last_parameters(
        store, group, trainable, backward.steps(), impl.hosts_store);
  }
}

void ReducerImpl::report_unwinding() {
  if (group.c10d() && !options.share_communicator() &&
      std::uncaught_exceptions() > exceptions_at_construction_) {
    detail::report_failure(
        group,
        detail::format(
            "an exception ended its training loop after step {}; see the "
            "output of that rank",
            backward.steps()));
  }
}

} // namespace ddp
