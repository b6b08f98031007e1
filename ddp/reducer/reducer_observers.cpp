#include <ddp/reducer/reducer_observers.h>

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

ReducerObservers::ReducerObservers(
    const TargetState& state,
    const ReducerOptions& options,
    const ProcessGroup& group,
    bool sends_buffers,
    const std::string& name,
    const c10::intrusive_ptr<c10d::Store>& store,
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    BucketRebuild& rebuild,
    GradientReduction& reduction)
    : compares_replicas(
          group.size() > 1 && ProcessGroupImpl::of(group).checks_replicas),
      progress(buckets),
      module(parameters, state.current, state.owned),
      recorder(parameters, buckets, rebuild, options.sample_rate()),
      comparison(store, group),
      sparse(parameters, group, list),
      buffers(state.buffers, group),
      check(
          state.parameters,
          group,
          options.check_divergence_every(),
          options.check_finite()),
      first_gradients(store, group),
      measured(options, buckets, rebuild, group, recorder),
      step_in_backward(parameters, reduction, /*at_once=*/!check.is_on()),
      capture(
          parameters,
          buckets,
          rebuild,
          sparse,
          step_in_backward,
          group,
          compares_replicas ? FirstGradients::kSteps : 0,
          check.is_on()) {
  for (size_t i = 0; i < state.sparse.size(); ++i) {
    if (state.sparse[i]) {
      sparse.add(i);
    }
  }
  const auto add_if = [this](bool on, ReductionObserver& observer) {
    if (on) {
      list.add(observer);
    }
  };
  const bool several = group.c10d() != nullptr;
  add_if(several, progress);
  if (options.unmanaged_leaves() != Severity::kIgnore) {
    auto known = options.known_leaves();
    known.insert(known.end(), state.ignored.begin(), state.ignored.end());
    list.add(leaf_report.emplace(
        UnmanagedLeaves(state.parameters, known), options.unmanaged_leaves()));
  }
  list.add(module);
  add_if(several && any_on_device(parameters), capture);
  recorder.record_all(options.record());
  add_if(several, recorder);
  if (!options.timeline_folder().empty()) {
    timeline_file.emplace(options, name, group, recorder, capture);
    add_if(several, *timeline_file);
  }
  add_if(several, comparison);
  add_if(several && !sparse.empty(), sparse);
  add_if(several && sends_buffers, buffers);
  add_if(check.is_on(), check);
  add_if(compares_replicas, first_gradients);
  add_if(
      several && options.bucket_layout() == BucketLayout::kMeasured, measured);
  list.add(step_in_backward);
}

} // namespace ddp::detail
