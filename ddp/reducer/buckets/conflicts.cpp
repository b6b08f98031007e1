#include <ddp/reducer/buckets/conflicts.h>

#include <ddp/internal/check.h>

#include <algorithm>
#include <iterator>

namespace ddp::detail {
namespace {

struct Conflict {
  Feature wanted;
  Feature other;
  const char* text;
};

// The pairs that cannot be combined.
constexpr Conflict kConflicts[] = {
    {Feature::kCapture,
     Feature::kHostBackend,
     "capturing a CUDA graph: reductions over gloo or MPI need the host in "
     "each step: use backend nccl, or do not capture"},
    {Feature::kCapture,
     Feature::kStepChecks,
     "capturing a CUDA graph: check_finite and check_divergence_every need the "
     "host in each step: turn off both checks"},
    {Feature::kCapture,
     Feature::kJoin,
     "capturing a CUDA graph: join needs the host in each step; use either "
     "capture or join"},
    {Feature::kCapture,
     Feature::kStepInBackward,
     "capturing a CUDA graph: step_in_backward needs the host in each step; "
     "use either capture or step_in_backward"},
    {Feature::kCapture,
     Feature::kSparseGradients,
     "capturing a CUDA graph: sparse gradients need the host in each step: use "
     "dense gradients, or do not capture"},
    {Feature::kClipGradNorm,
     Feature::kStepInBackward,
     "clip_grad_norm: step_in_backward steps before gradients can be clipped; "
     "use either clip_grad_norm or step_in_backward"},
    {Feature::kDivergenceCheck,
     Feature::kLocalHook,
     "check_divergence_every: with this comm_hook, ranks have different "
     "gradients, and thus different parameters; use either "
     "check_divergence_every or this comm_hook"},
    {Feature::kGradScaler,
     Feature::kStepInBackward,
     "GradScaler: with step_in_backward, this optimizer steps at the end of "
     "backward, before gradients can be inspected; use either GradScaler or "
     "step_in_backward"},
    {Feature::kJoin,
     Feature::kSkipUnused,
     "join: with skip_all_reduce_unused_params, all ranks must use the same "
     "parameters, and a rank without inputs uses none; use either join or "
     "skip_all_reduce_unused_params"},
};

} // namespace

void check_no_conflict(Feature wanted, Feature other, bool in_use) {
  const auto* const conflict = std::find_if(
      std::begin(kConflicts), std::end(kConflicts), [&](const Conflict& each) {
        return each.wanted == wanted && each.other == other;
      });
  TORCH_INTERNAL_ASSERT(conflict != std::end(kConflicts));
  DDP_CHECK_VALUE(!in_use, conflict->text);
}

} // namespace ddp::detail
