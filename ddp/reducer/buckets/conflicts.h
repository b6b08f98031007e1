#pragma once

namespace ddp::detail {

/// Features of a Reducer that conflict with some other features.
enum class Feature {
  kCapture,
  kStepChecks, ///< check_finite, check_divergence_every
  kClipGradNorm,
  kDivergenceCheck,
  kGradScaler,
  kHostBackend, ///< gloo or MPI for a GPU's buckets
  kJoin,
  kLocalHook, ///< CommHook::keeps_ranks_equal is false
  kSkipUnused, ///< skip_all_reduce_unused_params
  kSparseGradients,
  kStepInBackward,
};

/// Throws `c10::ValueError` with both names, the reason and the remedy if the
/// program requests `wanted` while `other` is in use (`in_use`). conflicts.cpp
/// lists the conflicting pairs; do not pass other pairs.
void check_no_conflict(Feature wanted, Feature other, bool in_use);

} // namespace ddp::detail
