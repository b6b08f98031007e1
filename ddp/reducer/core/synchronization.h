#pragma once

#include <ddp/internal/check.h>

#include <cstdint>

namespace ddp {

/// The time at which to decide whether a backward pass communicates.
enum class SyncDecision {
  kInBackward, ///< at its first gradient: yes, unless a guard exists
  kInForward, ///< before it: yes, if it reaches an anchored output
};

namespace detail {

/// Whether backward passes communicate, and whether the last pass did.
class Synchronization {
 public:
  explicit Synchronization(SyncDecision decision) : decision_(decision) {}

  void decide_in_backward() {
    decision_ = SyncDecision::kInBackward;
  }

  void begin_no_sync() {
    ++no_sync_depth_;
  }
  void end_no_sync() {
    --no_sync_depth_;
  }
  bool is_on() const {
    return no_sync_depth_ == 0;
  }

  /// Records that a forward pass ran whose backward is reduced, or is not.
  void forward_came(bool is_reduced) {
    forward_pending_ = is_reduced;
  }
  /// Whether the backward pass whose first gradient has arrived is reduced. A
  /// pass without an anchor (a gradient penalty) is reduced only if an anchored
  /// forward pass ran.
  bool decides_now() const {
    return decision_ == SyncDecision::kInForward ? forward_pending_ : is_on();
  }

  /// Records that a gradient arrived in a backward pass that is not reduced.
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
  /// Call this after `finish_backward`, and on ranks that participate in other
  /// ranks' backward passes.
  void forget_reduced() {
    reduced_ = false;
    finishes_ = true;
  }

  /// Returns whether the last backward pass was not reduced, for a call of
  /// `finish_backward` after `steps` reductions.
  bool finish(int64_t steps) const {
    DDP_CHECK(
        finishes_ || steps <= 1,
        "finish_backward() was first called after {} reductions: call it in "
        "every step, including the first, on all ranks; otherwise it cannot "
        "determine whether this step was reduced",
        steps);
    return !reduced_;
  }

 private:
  SyncDecision decision_;
  int64_t no_sync_depth_ = 0;
  /// Whether an anchored forward pass ran since the last reduction, and none
  /// after it that is not reduced.
  bool forward_pending_ = false;
  bool accumulated_ = false;
  /// Whether a reduction has run since the last `forget_reduced`.
  bool reduced_ = false;
  /// Whether `forget_reduced` has ever been called.
  bool finishes_ = false;
};

} // namespace detail
} // namespace ddp
