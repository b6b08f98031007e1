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

/// Before which forwards `DistributedDataParallel` gives every rank rank 0's
/// buffers. Such a forward is collective.
enum class BufferSync {
  /// As Python does: before the first, and before each whose predecessor had
  /// gradients to follow (grad mode on and no `no_sync` guard alive). So the
  /// first forward without gradients after one with them is collective too, and
  /// the first one with gradients after others keeps each rank's own buffers.
  kPython,
  /// Before each that gradients will follow, and no other: ranks may evaluate
  /// on their own.
  kTrainingForward,
};

/// What to do about a finding.
enum class Severity { kIgnore, kWarn, kError };

/// How gradients are shared out to buckets.
enum class BucketLayout {
  /// As Python does: by size, over rank 0's order of gradients.
  kPython,
  /// By measurement, on the CPU (elsewhere as `kPython`): from the times at
  /// which gradients come and what reductions take follow those buckets whose
  /// last reduction ends first. They are tried for a few backwards, and kept if
  /// backward was not slower on any rank; settled after 16 at most. Sums may
  /// differ from Python's in the last bits, and from run to run, as times do;
  /// `Reducer::state_dict` has the layout. Source: the model of Shi, Chu and
  /// Li, MG-WFBP, https://arxiv.org/abs/1811.11141.
  kMeasured,
};

/// Options of `Reducer` and `DistributedDataParallel`. Those that Python's
/// DistributedDataParallel has bear its names and defaults. All ranks must pass
/// the same; construction compares what matters, but for `init_sync` and
/// `share_communicator`, which decide whether and over what it can.
struct ReducerOptions {
  /// Size at which a bucket is reduced, in MiB; fractions are allowed. Unset:
  /// 25, and 1 for the first bucket, so that communication begins early.
  TORCH_ARG(std::optional<double>, bucket_cap_mb);

  /// The first bucket's size, in MiB. Unset: `bucket_cap_mb`, if set, or 1.
  TORCH_ARG(std::optional<double>, first_bucket_cap_mb);

  /// Sizes of the buckets in the order of reduction, in MiB; the last repeats.
  /// Unless empty it replaces the two above, in the first backward too.
  TORCH_ARG(std::vector<double>, bucket_cap_mb_list);

  /// How buckets are cut after the first backwards. The sizes above say where
  /// `kMeasured` starts from.
  TORCH_ARG(BucketLayout, bucket_layout) = BucketLayout::kPython;

  /// Whether every rank gets rank 0's buffers (batch-norm's statistics): by the
  /// wrapper before forwards, by an attached Reducer after backwards.
  TORCH_ARG(bool, broadcast_buffers) = true;

  /// Before which forwards the wrapper does so.
  TORCH_ARG(BufferSync, buffer_sync) = BufferSync::kPython;

  /// Whether the wrapper's forward moves its arguments to the group's device,
  /// if all parameters are there. See `DistributedDataParallel`.
  TORCH_ARG(bool, move_inputs) = true;

  /// Whether construction compares the models and gives every rank rank 0's
  /// parameters and buffers. Without it the caller vouches for both.
  TORCH_ARG(bool, init_sync) = true;

  /// Not needed: unused parameters are handled without it. Lays buckets out as
  /// Python does then (in the order of registration, never rebuilt).
  TORCH_ARG(bool, find_unused_parameters) = false;

  /// Gradients are slices of the buckets either way. With it a gradient that
  /// was kept over a backward is divided by the number of ranks, without it
  /// multiplied by the reciprocal, which rounds differently; as in Python.
  TORCH_ARG(bool, gradient_as_bucket_view) = false;

  /// Not needed: activation checkpointing is handled without it. Rebuilds the
  /// buckets after the second backward instead of the first, as in Python.
  TORCH_ARG(bool, static_graph) = false;

  /// Leaves out buckets of which this rank used no parameter since the last
  /// reduction. All ranks must use the same parameters then: if they leave out
  /// others than in the step before, they compare that over the group's store,
  /// and throw in this backward or one of the next two if it differs.
  TORCH_ARG(bool, skip_all_reduce_unused_params) = false;

  /// Names of parameters and buffers that stay each rank's own: not compared,
  /// not broadcast, not reduced. A name of the module's `named_parameters()`;
  /// one that the module does not have is an error.
  TORCH_ARG(std::set<std::string>, parameters_to_ignore);

  /// Names of parameters whose gradients are sparse, besides the weights of
  /// `Embedding` and `EmbeddingBag` with `sparse(true)`, which are found.
  TORCH_ARG(std::set<std::string>, sparse_parameters);

  /// What to do when backward reaches a leaf tensor that no Reducer manages, as
  /// the parameters of modules in a plain `std::vector`. Looked for in the
  /// first three backward passes; told of one that two forwards used, since one
  /// that a single forward used may be an input.
  TORCH_ARG(Severity, unmanaged_leaves) = Severity::kWarn;

  /// Leaf tensors that may get a gradient and be each rank's own: not reported.
  TORCH_ARG(std::vector<at::Tensor>, known_leaves);

  /// Every so many backward passes, compare the parameters of all ranks bit for
  /// bit, and throw if they differ. 0: never.
  TORCH_ARG(int64_t, check_divergence_every) = 0;

  /// Whether to look for NaN and infinity in each rank's gradients before they
  /// are averaged, and throw on all ranks by name.
  TORCH_ARG(bool, check_finite) = false;

  /// Reduces a bucket; unset: an all-reduce.
  TORCH_ARG(std::shared_ptr<CommHook>, comm_hook);

  /// Whether the Reducer's collectives run on the group that it is given, not
  /// on connections of its own. Nothing else may use it then in a backward.
  TORCH_ARG(bool, share_communicator) = false;

  /// Whether `Reducer::timeline()` is kept.
  TORCH_ARG(bool, record) = false;

  /// In each how many backwards, after the first 10, `Reducer::statistics()`
  /// takes times.
  TORCH_ARG(int64_t, sample_rate) = 100;

  /// Where to write this rank's times for `ddp-timeline`: a folder, made if it
  /// is not there. Empty: what DDP_TIMELINE names or, without that, nowhere.
  TORCH_ARG(std::string, timeline_folder);

  /// Of which backwards: "12", or "10-12". Empty: what DDP_TIMELINE_STEPS says
  /// (set and empty: none) or, without that, 10-12. The first of them ends with
  /// a few small collectives.
  TORCH_ARG(std::string, timeline_steps);
};

} // namespace ddp
