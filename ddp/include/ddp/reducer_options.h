#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/comm_hook.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp {

/// The forwards before which `DistributedDataParallel` gives every rank rank
/// 0's buffers. These forwards are collective.
enum class BufferSync {
  /// As Python does: before the first forward, and before each whose
  /// predecessor had gradients to follow (grad mode on, no `no_sync` guard). So
  /// the first forward without gradients after one with them is collective, and
  /// the first one with gradients after others keeps each rank's buffers.
  kPython,
  /// Before each forward that gradients will follow only: ranks may evaluate
  /// alone.
  kTrainingForward,
};

/// How to respond to a finding.
enum class Severity { kIgnore, kWarn, kError };

/// How gradients are assigned to buckets.
enum class BucketLayout {
  /// As Python does: by size, in rank 0's order of gradients.
  kPython,
  /// By measurement, on the CPU (elsewhere as `kPython`). From the times of
  /// gradients and reductions it computes the buckets whose last reduction ends
  /// first. It tries them for a few backwards and keeps them if backward was
  /// not slower on any rank. It decides after 16 backwards at most. Sums may
  /// differ from Python's in the last bits, and between runs, as times do;
  /// `Reducer::state_dict` has the layout. Source: the model of Shi, Chu and
  /// Li, MG-WFBP, https://arxiv.org/abs/1811.11141.
  kMeasured,
};

/// Options of `Reducer` and `DistributedDataParallel`. Those that Python's
/// DistributedDataParallel has keep its names and defaults. All ranks must pass
/// the same. Construction compares those that matter, except `init_sync` and
/// `share_communicator`, which decide whether and over which group it can.
struct ReducerOptions {
  /// Size at which a bucket is reduced, in MiB; fractions are allowed. Unset:
  /// 25, and 1 for the first bucket, so that communication begins early.
  TORCH_ARG(std::optional<double>, bucket_cap_mb);

  /// The first bucket's size, in MiB. Unset: `bucket_cap_mb`, if set, or 1.
  TORCH_ARG(std::optional<double>, first_bucket_cap_mb);

  /// Sizes of the buckets in the order of reduction, in MiB; the last repeats.
  /// Unless empty, it replaces the two above, also in the first backward.
  TORCH_ARG(std::vector<double>, bucket_cap_mb_list);

  /// How buckets are cut after the first backwards. `kMeasured` starts from the
  /// sizes above.
  TORCH_ARG(BucketLayout, bucket_layout) = BucketLayout::kPython;

  /// Whether every rank gets rank 0's buffers (batch-norm's statistics): from
  /// the wrapper before forwards, from an attached Reducer after backwards.
  TORCH_ARG(bool, broadcast_buffers) = true;

  /// The forwards before which the wrapper does so.
  TORCH_ARG(BufferSync, buffer_sync) = BufferSync::kPython;

  /// Whether the wrapper's forward moves its arguments to the group's device,
  /// if all parameters are there. See `DistributedDataParallel`.
  TORCH_ARG(bool, move_inputs) = true;

  /// Whether construction compares the models and gives every rank rank 0's
  /// parameters and buffers. If not, the caller guarantees that they agree.
  TORCH_ARG(bool, init_sync) = true;

  /// Not needed: unused parameters are handled without it. Lays buckets out as
  /// Python then does (in the order of registration, never rebuilt).
  TORCH_ARG(bool, find_unused_parameters) = false;

  /// Gradients are slices of the buckets either way. With this option, a
  /// gradient kept over a backward is divided by the number of ranks; without
  /// it, multiplied by the reciprocal, which rounds differently. As in Python.
  TORCH_ARG(bool, gradient_as_bucket_view) = false;

  /// Not needed: activation checkpointing is handled without it. Rebuilds the
  /// buckets after the second backward instead of the first, as in Python.
  TORCH_ARG(bool, static_graph) = false;

  /// Leaves out buckets of which this rank used no parameter since the last
  /// reduction. All ranks must then use the same parameters. If ranks leave out
  /// other buckets than in the step before, they compare them over the group's
  /// store, and throw in this backward or one of the next two if they differ.
  TORCH_ARG(bool, skip_all_reduce_unused_params) = false;

  /// Names of parameters and buffers that each rank keeps: not compared, not
  /// broadcast, not reduced. Names are those of the module's
  /// `named_parameters()`; an unknown name is an error.
  TORCH_ARG(std::set<std::string>, parameters_to_ignore);

  /// Names of parameters whose gradients are sparse, besides the weights of
  /// `Embedding` and `EmbeddingBag` with `sparse(true)`, which are found.
  TORCH_ARG(std::set<std::string>, sparse_parameters);

  /// The response if backward reaches a leaf tensor that no Reducer manages,
  /// such as a parameter of modules in a plain `std::vector`. Checked in the
  /// first three backwards. Only a leaf that two forwards used is reported: one
  /// that a single forward used may be an input.
  TORCH_ARG(Severity, unmanaged_leaves) = Severity::kWarn;

  /// Leaf tensors that may get a gradient that each rank keeps: not reported.
  TORCH_ARG(std::vector<at::Tensor>, known_leaves);

  /// Interval, in backwards, at which the parameters of all ranks are compared
  /// bit for bit; if they differ, backward throws. 0: never.
  TORCH_ARG(int64_t, check_divergence_every) = 0;

  /// Whether to check each rank's gradients for NaN and infinity before they
  /// are averaged, and to throw on all ranks with the parameters' names.
  TORCH_ARG(bool, check_finite) = false;

  /// Reduces a bucket; unset: an all-reduce.
  TORCH_ARG(std::shared_ptr<CommHook>, comm_hook);

  /// Whether the Reducer's collectives run on the given group, not on separate
  /// connections. Nothing else may then use that group during a backward.
  TORCH_ARG(bool, share_communicator) = false;

  /// Whether `Reducer::timeline()` is kept.
  TORCH_ARG(bool, record) = false;

  /// Interval, in backwards, at which `Reducer::statistics()` takes times after
  /// the first 10; at least 1.
  TORCH_ARG(int64_t, sample_rate) = 100;

  /// The folder for this rank's times for `ddp-timeline`, created if missing.
  /// Empty: the folder that DDP_TIMELINE names, or nothing is written.
  TORCH_ARG(std::string, timeline_folder);

  /// The backwards written: "12", or "10-12". Empty: the value of
  /// DDP_TIMELINE_STEPS (set and empty: none) or, if unset, 10-12. The first of
  /// them ends with a few small collectives.
  TORCH_ARG(std::string, timeline_steps);
};

} // namespace ddp
