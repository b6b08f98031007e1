#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/orphans.h>
#include <ddp/reducer/observers/replica_digests.h>

// What a Reducer tells when it ends.

namespace ddp {
/// Where it has reduced, a checkpoint will tell whether ranks went on alone.
void ReducerImpl::report_unused() {
  if (checked_alone_ < kCheckedAlone ||
      std::uncaught_exceptions() > exceptions_at_construction_ ||
      !detail::ProcessGroupImpl::of(group_).first_error.reason().empty()) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& parameter : parameters_) {
    names.push_back(parameter.name);
  }
  detail::watch_orphans(tensors(), names, current_.step > 0);
  if (accumulated_ && group_.size() == 1) { // several ranks compare theirs
    TORCH_WARN(
        "ddp: a Reducer ends that has reduced nothing: was each backward under "
        "no_sync()?");
  }
  if (current_.step == 0 && observers_.module.is_gone()) {
    TORCH_WARN(
        "ddp: a Reducer ends that has reduced nothing, and whose module is "
        "gone. Was the net replaced (`net = Net();`) after the "
        "Reducer was constructed? Then what was trained was not averaged over "
        "ranks: construct the Reducer for the net that you train");
  }
}

/// At its end, the ranks hold the same parameters where they trained together.
/// With hooks of their own they may average later.
void ReducerImpl::compare_replicas() {
  const auto& group = detail::ProcessGroupImpl::of(group_);
  if (!observers_.compares_replicas || options_.comm_hook() || !is_of_use() ||
      std::uncaught_exceptions() > exceptions_at_construction_ ||
      !group.first_error.reason().empty()) {
    return;
  }
  bool trained = current_.step > 0;
  NamedTensors parameters;
  for (const auto& parameter : parameters_) {
    if (!parameter.fits(parameter.tensor)) {
      return; // no longer as it was managed
    }
    trained = trained || parameter.tensor.grad().defined();
    if (parameter.managed) {
      parameters.append(parameter.key, parameter.tensor);
    }
  }
  if (trained) {
    auto known = tensors();
    const auto& leaves = options_.known_leaves();
    known.insert(known.end(), leaves.begin(), leaves.end());
    parameters.append(observers_.module.added(known));
    detail::compare_last_parameters(
        store_, group_, parameters, current_.step, group.hosts_store);
  }
}

void ReducerImpl::report_unwinding() {
  if (group_.c10d() && !options_.share_communicator() &&
      std::uncaught_exceptions() > exceptions_at_construction_) {
    detail::report_failure(
        group_,
        detail::format(
            "an exception ended its training loop after step {}; see its own "
            "output",
            current_.step));
  }
}

} // namespace ddp
