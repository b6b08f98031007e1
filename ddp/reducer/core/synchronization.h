#pragma once

#include <ddp/internal/check.h>

#include <cstdint>

namespace ddp {

/// The time at which to decide whether a backward communicates.
enum class SyncDecision {
  kInBackward, ///< at its first gradient: yes, unless a guard lives
  kInForward, ///< before it: yes, if it reaches an output with an anchor
};

namespace detail {

/// Whether backwards communicate, and whether the last one did.
class Synchronization {
 public:
  explicit Synchronization(SyncDecision decision) : decision_(decision) {}

  void decide_in_backward() {
    decision_ = SyncDecision::kInBackward;
  }

  void begin_no_sync() {
    ++no_sync_depth_;
    forward_pending_ = false;
  }
  void end_no_sync() {
    --no_sync_depth_;
  }
  bool is_on() const {
    return no_sync_depth_ == 0;
  }

  /// An anchored forward ran.
  void forward_came() {
    forward_pending_ = true;
  }
  /// Whether the backward whose first gradient has arrived is reduced; without
  /// an anchor (a gradient penalty), only if an anchored forward ran.
  bool decides_now() const {
    return decision_ == SyncDecision::kInForward ? forward_pending_ : is_on();
  }

  /// A gradient arrived in a backward that is not reduced.
  void accumulated() {
    accumulated_ = true;
  }
  bool has_accumulated() const {
    return accumulated_;
  }

  void reduced() {
    reduced_ = true;
    forward_pending_ = false;
  }
  /// For ranks that take part in the backwards of others.
  void forget_reduced() {
    reduced_ = false;
  }

  /// `finish_backward` is called after `steps` reductions. Returns whether the
  /// last backward was not reduced.
  bool finish(int64_t steps) {
    DDP_CHECK(
        finishes_ || steps <= 1,
        "finish_backward() was first called after {} reductions: call it in "
        "every step, including the first, on all ranks; otherwise it cannot "
        "determine whether this step was reduced",
        steps);
    finishes_ = true;
    return !reduced_;
  }

 private:
  SyncDecision decision_;
  int64_t no_sync_depth_ = 0;
  /// Whether an anchored forward ran since the last reduction.
  bool forward_pending_ = false;
  bool accumulated_ = false;
  /// Whether a reduction has run since `finish_backward`.
  bool reduced_ = false;
  /// Whether `finish_backward` is called at all.
  bool finishes_ = false;
};

} // namespace detail
} // namespace ddp
