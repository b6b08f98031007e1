#pragma once

#include <c10/util/Exception.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ddp {

namespace detail {
struct JoinState;
}

/// One call to `Joinable::notify_join_context` in a `Join`; equal on all ranks.
struct JoinStep {
  /// The `call` that ranks with inputs passed to `notify_join_context`.
  int64_t call = 0;
  int64_t live = 1; ///< The number of ranks that have inputs.
  int64_t last_live = 0; ///< The highest rank that has inputs.
  /// The divisor of means: the group's size or, without
  /// `divide_by_initial_world_size`, `live`.
  int64_t divisor = 1;
};

/// An object whose collectives in each step need all ranks, even ranks without
/// inputs: a Reducer, a sharded optimizer, or a program's object.
///
/// Derive from this class, call `notify_join_context` immediately before the
/// collectives, and let `main_hook` call the same collectives with neutral
/// values. Source: torch/distributed/algorithms/join.py.
class DDP_API Joinable {
 public:
  Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable();

 protected:
  /// Makes ranks without inputs call `main_hook`. Call this method before each
  /// step's collectives. `call` (>= 0) distinguishes kinds of steps. Collective
  /// over the `Join`'s group; has no effect and no cost if this object is in no
  /// `Join`. Throws `EarlyTermination` if a rank's inputs have ended and
  /// `throw_on_early_termination` is set, and `c10::Error` if `call` is
  /// negative or differs between ranks.
  std::optional<JoinStep> notify_join_context(int64_t call = 0);

  /// Whether this object is in a `Join` with `throw_on_early_termination`.
  bool throws_early() const;

  /// Whether collectives of another object in the same `Join` may begin before
  /// this object's collectives end (see `overlaps`). The next
  /// `notify_join_context` then calls `complete_main_hook`. Collectives at the
  /// end of a step thus need a separate call.
  bool shares_steps() const;

  /// Called on ranks without inputs when other ranks call
  /// `notify_join_context`.
  virtual void main_hook(const JoinStep& step) = 0;

  /// Whether `main_hook` only starts collectives, and `complete_main_hook`
  /// waits for them. Other objects' collectives may begin in between, as with
  /// Reducers that share a backward pass. Must be true for an object that
  /// communicates within a backward pass of a Reducer in the same `Join`;
  /// otherwise, the ranks wait for each other until the timeout.
  virtual bool overlaps() const {
    return false;
  }
  virtual void complete_main_hook() {} ///< See `overlaps`.

  /// Called on all ranks when the last rank has joined. No rank had inputs for
  /// longer than rank `root`.
  virtual void post_hook(int64_t /*root*/) {}

 private:
  friend struct detail::JoinState;
  /// Called repeatedly in a long wait of the `Join` over `group`, whose
  /// failures end the wait. Throws if this object has failed on another rank.
  virtual void check_wait(const ProcessGroup& /*group*/) {}

  detail::JoinState* join_ = nullptr;
};

/// Thrown on all ranks when one rank's inputs end, if
/// `throw_on_early_termination` is set.
class DDP_API EarlyTermination : public c10::Error {
  using Error::Error;
};

/// Options of `Join`, with Python's names and defaults; equal on all ranks.
struct JoinOptions {
  /// Whether gradients are divided by the group's size, so that each sample has
  /// the same weight. Otherwise, gradients are divided by the number of ranks
  /// with inputs, so that each step has the same weight. A communication hook
  /// that takes unscaled gradients chooses its divisor.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;

  /// Whether all ranks throw `EarlyTermination` as soon as one rank has no
  /// inputs, for programs with collectives that such a rank cannot match. A
  /// wrapper throws before its forward pass, and an attached Reducer when the
  /// backward pass begins. Before the next loop, reset the gradients that
  /// accumulated under `no_sync`.
  TORCH_ARG(bool, throw_on_early_termination) = false;

  /// If false, disables the `Join`, for loops with equal numbers of inputs.
  TORCH_ARG(bool, enable) = true;
};

/// Lets ranks run different numbers of steps. At the end of the scope, a rank
/// without more inputs joins the other ranks' collectives until the inputs of
/// all ranks have ended:
///
///     {
///       auto join = reducer.join();
///       for (auto& batch : *loader) {
///         ... forward, backward and step as usual } }
///
/// Gradients of ranks without inputs count as zero. These ranks get the other
/// ranks' means, which `Reducer::step_in_backward` uses; at the end, their
/// gradients are reset, so step optimizers within the scope. All ranks then
/// have the parameters and (with `broadcast_buffers`) buffers of the rank that
/// had inputs longest (of several, the highest). A rank's optimizer keeps the
/// state of the rank's last step, unless the optimizer steps in backward or is
/// a `ZeroRedundancyOptimizer`. With `zero_grad(false)`, only ranks with inputs
/// step parameters in backward that no rank used.
///
/// Until `finish` returns, only the joinables may communicate, over any group:
/// other collectives, as in a save or `StopSignal::requested`, wait for ranks
/// without inputs until the timeout.
///
/// Exceptions propagate unchanged, as without a `Join`.
class DDP_API Join {
 public:
  /// The objects in the `Join`.
  using Joinables = std::vector<std::reference_wrapper<Joinable>>;

  /// Ranks report over `group` whether they have inputs, with 8 bytes per rank
  /// and call. All ranks pass the same joinables in the same order. Not
  /// collective. Throws `c10::ValueError` if the list is empty, an object
  /// appears twice or already has a `Join`, or the group or a duplicate already
  /// has one (a deadlock).
  [[nodiscard]] Join(
      const ProcessGroup& group,
      const Joinables& joinables,
      const JoinOptions& options = {});

  /// Calls `finish()`, unless an exception leaves the scope.
  ~Join() noexcept(false);

  /// Declares that this rank has no more inputs, and runs main hooks until no
  /// rank has inputs. Throws as collectives do, and `EarlyTermination` if a
  /// rank has inputs and `throw_on_early_termination` is set. Collective.
  void finish();

 private:
  std::unique_ptr<detail::JoinState> state_;
};

} // namespace ddp
