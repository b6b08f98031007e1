#include <ddp/reducer/join_participation.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/reducer_impl.h>

#include <ATen/core/grad_mode.h>

namespace ddp {
namespace {

// What it announces.
constexpr int64_t kReduction = 0;
constexpr int64_t kForward = 1;
constexpr int64_t kEnd = 2;

} // namespace

Join ReducerImpl::join(const JoinOptions& options) {
  return Join(
      group_,
      options.enable() ? Join::Joinables{joinable()} : Join::Joinables(),
      options);
}

Joinable& ReducerImpl::joinable() {
  DDP_CHECK_VALUE(
      !options_.skip_all_reduce_unused_params(),
      "join: with skip_all_reduce_unused_params all ranks must use the same "
      "parameters, and a rank without inputs uses none");
  return participation;
}

void JoinParticipation::announce_reduction() {
  step_ = announce(kReduction);
}

void JoinParticipation::announce_end() {
  if (!has_no_inputs_ && shares_steps()) {
    announce(kEnd);
  }
}

/// Also where no buffers are sent if ranks are to throw early: before a forward
/// that may communicate itself, as that of `SyncBatchNorm`.
int64_t JoinParticipation::announce_forward(bool gives_buffers) {
  const bool tells =
      gives_buffers || (throws_early() && at::GradMode::is_enabled());
  const auto step = tells ? announce(kForward) : std::nullopt;
  return step ? step->last_live : 0;
}

/// What comes of it is this rank's gradient too, as it is of a rank that used
/// no parameter.
void JoinParticipation::shadow(const JoinStep& step) {
  const std::lock_guard<std::mutex> lock(reducer_.mutex_);
  if (step.call == kForward) {
    on_forward(step.last_live);
    return;
  }
  if (step.call == kEnd) {
    return; // it has come, by `complete_shadow`
  }
  reducer_.check_usable();
  reducer_.guarded([&] {
    step_ = step;
    has_no_inputs_ = true;
    for (auto& parameter : reducer_.parameters_) {
      parameter.used = false; // what accumulated is not reduced any more
    }
    reducer_.begin();
    reducer_.contribute_rest();
  });
}

void JoinParticipation::complete_shadow() {
  const std::lock_guard<std::mutex> lock(reducer_.mutex_);
  if (!reducer_.open_) {
    return; // it was a forward's
  }
  reducer_.guarded([&] { reducer_.finish(); });
  has_no_inputs_ = false;
  reducer_.sync_.forget_reduced();
}

/// Ranks that stopped early have parameters of an earlier step.
void JoinParticipation::end_join(int64_t root) {
  const std::lock_guard<std::mutex> lock(reducer_.mutex_);
  step_.reset();
  auto state = reducer_.tensors();
  if (reducer_.options_.broadcast_buffers()) {
    const auto buffers = reducer_.observers_.buffers.tensors();
    state.insert(state.end(), buffers.begin(), buffers.end());
  }
  broadcast_tensors(state, reducer_.group_, root);
  if (on_end) {
    on_end();
  }
}

} // namespace ddp
