#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>

#include <ATen/core/grad_mode.h>

// What a Reducer does where ranks have different numbers of steps.

namespace ddp {
namespace {

// What it announces.
constexpr int64_t kAnnouncesReduction = 0;
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
  return *this;
}

/// Before a reduction: the ranks without inputs take part in it.
void ReducerImpl::meet() {
  join_step_ = announce(kAnnouncesReduction);
}

/// Before the end of a reduction that may communicate. Where others share the
/// backward, the ranks without inputs put ends off until they hear of one.
void ReducerImpl::meet_at_end() {
  const bool measures_clock = timeline_file_ && !timeline_file_->has_clock();
  if (!shadowing_ && shares_steps() &&
      (trial_ || measures_clock || check_.is_on())) {
    announce(kEnd);
  }
}

/// Also where no buffers are sent if ranks are to throw early: before a forward
/// that may communicate itself, as that of `SyncBatchNorm`.
int64_t ReducerImpl::announce_forward(bool gives_buffers) {
  const bool tells =
      gives_buffers || (throws_early() && at::GradMode::is_enabled());
  const auto step = tells ? announce(kForward) : std::nullopt;
  return step ? step->last_live : 0;
}

/// Takes part with zeros. What comes of it is this rank's gradient too, as it
/// is of a rank that used no parameter.
void ReducerImpl::shadow(const JoinStep& step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (step.call == kForward) {
    on_shadow_forward(step.last_live);
    return;
  }
  if (step.call == kEnd) {
    return; // it has come, by `complete_shadow`
  }
  check_usable();
  guarded([&] {
    join_step_ = step;
    shadowing_ = true;
    for (auto& parameter : parameters_) {
      parameter.used = false; // what accumulated is not reduced any more
    }
    begin();
    contribute_rest();
  });
}

void ReducerImpl::complete_shadow() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!open_) {
    return; // it was a forward's
  }
  guarded([&] { finish(); });
  shadowing_ = false;
  reduced_ = false;
}

/// Ranks that stopped early have parameters of an earlier step.
void ReducerImpl::end_join(int64_t root) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join_step_.reset();
  auto state = tensors();
  if (options_.broadcast_buffers()) {
    const auto buffers = buffers_().tensors;
    state.insert(state.end(), buffers.begin(), buffers.end());
  }
  broadcast_tensors(state, group_, root);
  if (on_join_end) {
    on_join_end();
  }
}

} // namespace ddp
