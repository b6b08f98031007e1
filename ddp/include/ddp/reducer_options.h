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

/// Selects the forward passes before which `DistributedDataParallel` broadcasts
/// rank 0's buffers. These passes are collective.
enum class BufferSync {
  /// As in Python: the first pass, and each pass after one with gradients (grad
  /// mode on, no `no_sync` guard). Thus an evaluation's first pass is
  /// collective, and the next training pass keeps each rank's buffers.
  kPython,
  /// Only passes with gradients, so ranks may evaluate alone.
  kTrainingForward,
};

/// The response to a finding.
enum class Severity { kIgnore, kWarn, kError };

/// How gradients are assigned to buckets.
enum class BucketLayout {
  /// As in Python: by size, in rank 0's order of gradients.
  kPython,
  /// By measurement on the CPU; elsewhere, as `kPython`. From the times of
  /// gradients and reductions, the Reducer computes the buckets whose last
  /// reduction ends earliest. The Reducer tries these buckets for a few passes,
  /// keeps them if no rank was slower, and decides after at most 16 passes.
  /// Since times vary, the last bits of sums may differ from Python's and
  /// between runs; `Reducer::state_dict` saves the layout. Source: Shi, Chu and
  /// Li, MG-WFBP, https://arxiv.org/abs/1811.11141.
  kMeasured,
};

/// Options of `Reducer` and `DistributedDataParallel`, with Python's names and
/// defaults if Python has them. All ranks must pass the same options.
/// Construction compares options that affect other ranks, except `init_sync`
/// and `share_communicator`, on which the comparison itself depends.
struct ReducerOptions {
  /// The size at which a bucket is reduced, in MiB; may be a fraction. Unset:
  /// 25, and 1 for the first bucket, so that communication begins early.
  TORCH_ARG(std::optional<double>, bucket_cap_mb);

  /// The first bucket's size, in MiB. Unset: `bucket_cap_mb` if set, else 1.
  TORCH_ARG(std::optional<double>, first_bucket_cap_mb);

  /// Bucket sizes in the order of reduction, in MiB; the last size repeats.
  /// Unless empty, the list replaces `bucket_cap_mb` and `first_bucket_cap_mb`,
  /// even in the first backward pass.
  TORCH_ARG(std::vector<double>, bucket_cap_mb_list);

  /// How gradients are assigned to buckets after the first backward passes.
  /// `kMeasured` starts from the sizes above.
  TORCH_ARG(BucketLayout, bucket_layout) = BucketLayout::kPython;

  /// Whether rank 0's buffers (batch-norm's statistics) are broadcast: by the
  /// wrapper before forward passes, by a Reducer after backward passes, and at
  /// the construction and the end of a `Join`. If a later pass over the same
  /// graph needs this rank's values of a buffer, name it in
  /// `parameters_to_ignore`, or run one pass over the sum of the losses.
  TORCH_ARG(bool, broadcast_buffers) = true;

  /// The forward passes before which the wrapper broadcasts buffers.
  TORCH_ARG(BufferSync, buffer_sync) = BufferSync::kPython;

  /// Whether the wrapper's forward moves its arguments to the group's device,
  /// if all parameters are on it. See `DistributedDataParallel`.
  TORCH_ARG(bool, move_inputs) = true;

  /// Whether construction compares the models and broadcasts rank 0's
  /// parameters and (with `broadcast_buffers`) buffers. If false, the caller
  /// must ensure equal models.
  TORCH_ARG(bool, init_sync) = true;

  /// Not needed, since unused parameters are always handled. Lays out buckets
  /// as Python's option does (in registration order, never rebuilt).
  TORCH_ARG(bool, find_unused_parameters) = false;

  /// Gradients are always slices of the buckets. As in Python, this option
  /// divides a gradient that is kept across passes by the number of ranks.
  /// Otherwise, the gradient is multiplied by the reciprocal, which rounds
  /// differently.
  TORCH_ARG(bool, gradient_as_bucket_view) = false;

  /// Not needed, since activation checkpointing is handled. Rebuilds the
  /// buckets after the second backward pass instead of the first, as in Python.
  /// With activation checkpointing, also reduces its gradients during the pass,
  /// not at its end; each must then arrive equally often in each step.
  TORCH_ARG(bool, static_graph) = false;

  /// Skips buckets of which this rank used no parameter since the last
  /// reduction. All ranks must then use the same parameters. If the skipped
  /// buckets change between steps, ranks compare them over the group's store;
  /// if ranks differ, this backward pass or one of the next two throws.
  TORCH_ARG(bool, skip_all_reduce_unused_params) = false;

  /// Names (`named_parameters()`, `named_buffers()`) of parameters and buffers
  /// that the Reducer does not compare, broadcast or reduce. An unknown name is
  /// an error. A checkpoint of the module has only rank 0's values of them, and
  /// the first three warn if trained ones differ; to save each rank's, see
  /// `TrainingState::add`.
  TORCH_ARG(std::set<std::string>, parameters_to_ignore);

  /// Names of parameters whose gradients are sparse. Weights of `Embedding` and
  /// `EmbeddingBag` with `sparse(true)` are detected automatically.
  TORCH_ARG(std::set<std::string>, sparse_parameters);

  /// The response if one of the first three backward passes reaches a leaf
  /// tensor of no Reducer, such as a parameter of a module in a plain
  /// `std::vector`. Only a leaf that two forward passes used is reported, since
  /// a leaf of a single pass may be an input.
  TORCH_ARG(Severity, unmanaged_leaves) = Severity::kWarn;

  /// Leaf tensors that are not reported if they get a gradient.
  TORCH_ARG(std::vector<at::Tensor>, known_leaves);

  /// The interval, in backward passes, at which the parameters of all ranks are
  /// compared bit for bit; if they differ, the pass throws. 0: never.
  TORCH_ARG(int64_t, check_divergence_every) = 0;

  /// Whether to check each rank's gradients for NaN and infinity before they
  /// are averaged, and to throw on all ranks with the parameters' names. Not
  /// for a `GradScaler`, which expects infinite gradients.
  TORCH_ARG(bool, check_finite) = false;

  /// The hook that reduces buckets. Unset: an all-reduce. Sparse gradients are
  /// averaged over all ranks without the hook.
  TORCH_ARG(std::shared_ptr<CommHook>, comm_hook);

  /// Whether the Reducer's collectives run on the given group, not on separate
  /// connections. Nothing else may then use that group during a backward pass,
  /// and an error in a pass also ends the group.
  TORCH_ARG(bool, share_communicator) = false;

  /// Whether `Reducer::timeline()` is recorded.
  TORCH_ARG(bool, record) = false;

  /// The interval, in backward passes, at which `Reducer::statistics()`
  /// measures times after the first 10 passes; at least 1.
  TORCH_ARG(int64_t, sample_rate) = 100;

  /// The folder for this rank's times for `ddp-timeline`; created if missing.
  /// Empty: the folder in DDP_TIMELINE; if both are unset, nothing is written.
  TORCH_ARG(std::string, timeline_folder);

  /// The backward passes to write, such as "12" or "10-12". Empty: the value of
  /// DDP_TIMELINE_STEPS (if set but empty, none), or 10-12 if the variable is
  /// unset. The first of these passes ends with a few small collectives.
  TORCH_ARG(std::string, timeline_steps);
};

} // namespace ddp
