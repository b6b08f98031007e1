#pragma once

namespace ddp::detail {

/// What a program can ask of a Reducer and cannot have together with all else.
enum class Feature {
  kCapture,
  kStepChecks, ///< check_finite, check_divergence_every
  kClipGradNorm,
  kGradScaler,
  kJoin,
  kSkipUnused, ///< skip_all_reduce_unused_params
  kSparseGradients,
  kStepInBackward,
};

/// Throws `c10::ValueError` with both names, the reason and the remedy if
/// `in_use`, while the program asks for `wanted`. The pairs that conflict, and
/// why, are listed in the source; others are not to be passed.
void check_no_conflict(Feature wanted, Feature other, bool in_use);

} // namespace ddp::detail
