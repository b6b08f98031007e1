#pragma once

#include <ddp/reducer/core/backward_comparison.h>
#include <ddp/reducer/observers/buffer_broadcast.h>
#include <ddp/reducer/observers/capture_check.h>
#include <ddp/reducer/observers/measured_buckets.h>
#include <ddp/reducer/observers/module_membership.h>
#include <ddp/reducer/observers/replica_checksums.h>
#include <ddp/reducer/observers/sparse_gradients.h>
#include <ddp/reducer/observers/step_check.h>
#include <ddp/reducer/observers/step_in_backward.h>
#include <ddp/reducer/observers/timeline_file.h>
#include <ddp/reducer/observers/unmanaged_leaves.h>
#include <ddp/reducer/progress.h>

namespace ddp::detail {

/// The observers that a Reducer's options enable. `list` contains only enabled
/// observers and `step_in_backward`, which is idle until `attach`. In a group
/// of one, gradients are only checked, and `list` contains few observers.
struct ReducerObservers {
  /// `name` is the Reducer's name, `store` its part of the group's store;
  /// buffers are broadcast if `sends_buffers` is true. All references must
  /// outlive this object.
  ReducerObservers(
      const TargetState& state,
      const ReducerOptions& options,
      const ProcessGroup& group,
      bool sends_buffers,
      const std::string& name,
      const c10::intrusive_ptr<c10d::Store>& store,
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BucketRebuild& rebuild,
      GradientReduction& reduction);

  /// Whether ranks compare values that should be equal on all ranks.
  bool compares_replicas;
  ObserverList list;

  Progress progress;
  std::optional<LeafReport> leaf_report;
  ModuleMembership module;
  Recorder recorder;
  std::optional<TimelineFile> timeline_file;
  BackwardComparison comparison;
  SparseGradients sparse;
  BufferBroadcast buffers;
  StepCheck check;
  FirstGradients first_gradients;
  MeasuredBuckets measured;
  StepInBackward step_in_backward;
  CaptureCheck capture;
};

} // namespace ddp::detail
