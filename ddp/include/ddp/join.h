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

/// One call of `Joinable::notify_join_context` in a `Join`; equal on all ranks.
struct JoinStep {
  /// The `call` that ranks with inputs passed to `notify_join_context`.
  int64_t call = 0;
  int64_t live = 1; ///< The number of ranks that have inputs.
  int64_t last_live = 0; ///< The highest of these ranks.
  /// The divisor of means: the group's size or, without
  /// `divide_by_initial_world_size`, `live`.
  int64_t divisor = 1;
};

/// An object whose collectives in each step need all ranks, even those without
/// inputs: a Reducer, a sharded optimizer, or a class of the program.
///
/// Derive from it, call `notify_join_context` right before the collectives, and
/// have `main_hook` call the same collectives with neutral values. Source:
/// torch/distributed/algorithms/join.py.
class DDP_API Joinable {
 public:
  Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable();

 protected:
  /// Call it before each step's collectives: it makes the ranks without inputs
  /// call `main_hook`. `call` (>= 0) distinguishes kinds of steps. Without a
  /// `Join` of this object it does nothing, at no cost; with one it is
  /// collective over the `Join`'s group. Throws `EarlyTermination` if a rank's
  /// inputs have ended and `throw_on_early_termination` is set, and
  /// `c10::Error` if `call` is negative or differs between ranks.
  std::optional<JoinStep> notify_join_context(int64_t call = 0);

  /// Whether this object is in a `Join` with `throw_on_early_termination`.
  bool throws_early() const;

  /// Whether, in a `Join` of this object, collectives of another object may
  /// begin before those of this object end (see `overlaps`). The next
  /// `notify_join_context` then calls `complete_main_hook`. Collectives at the
  /// end thus need a separate call.
  bool shares_steps() const;

  /// Called on ranks without inputs if the others call `notify_join_context`.
  virtual void main_hook(const JoinStep& step) = 0;

  /// Whether `main_hook` only starts collectives, and `complete_main_hook`
  /// waits for them. Other objects' collectives may begin in between, as with
  /// Reducers that share a backward.
  virtual bool overlaps() const {
    return false;
  }
  virtual void complete_main_hook() {} ///< See `overlaps`.

  /// Called on all ranks when the last one has joined. No rank had inputs
  /// longer than `root`.
  virtual void post_hook(int64_t /*root*/) {}

 private:
  friend struct detail::JoinState;
  detail::JoinState* join_ = nullptr;
};

/// Thrown on all ranks when one rank's inputs end, if `JoinOptions` request it.
class DDP_API EarlyTermination : public c10::Error {
  using Error::Error;
};

/// Options of `Join`, with Python's names and defaults; equal on all ranks.
struct JoinOptions {
  /// Whether gradients are divided by the group's size, so that each sample has
  /// the same weight. Otherwise, they are divided by the number of ranks with
  /// inputs: each step has the same weight. A communication hook that takes
  /// unscaled gradients chooses its divisor.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;

  /// Whether all ranks throw `EarlyTermination` as soon as one has no inputs,
  /// for programs with collectives that this rank cannot match. A wrapper
  /// throws before its forward, an attached Reducer when backward begins.
  TORCH_ARG(bool, throw_on_early_termination) = false;

  /// If false, disables the `Join`, for loops with equal numbers of inputs.
  TORCH_ARG(bool, enable) = true;
};

/// Lets ranks have different numbers of steps. At the end of its scope, a rank
/// whose inputs have ended takes part in the collectives of the others until
/// their inputs have ended too:
///
///     {
///       auto join = reducer.join();
///       for (auto& batch : *loader) {
///         ... forward, backward and step as usual } }
///
/// Gradients of ranks without inputs count as zero. These ranks get the means
/// of the others, and `Reducer::step_in_backward` steps with them. At the end
/// all ranks have the parameters and buffers of the rank that had inputs
/// longest, the highest if there are several. A rank's optimizer keeps the
/// state of its last step, unless it steps in backward or is a
/// `ZeroRedundancyOptimizer`.
///
/// Exceptions propagate unchanged, as without a `Join`.
class DDP_API Join {
 public:
  /// The objects that take part.
  using Joinables = std::vector<std::reference_wrapper<Joinable>>;

  /// Over `group`, ranks report whether they have inputs: 8 bytes for each rank
  /// and call. Until `finish`, only the joinables may use this group. All ranks
  /// pass the same joinables in the same order. Not collective. Throws
  /// `c10::ValueError` if the list is empty, an object appears twice or already
  /// has a `Join`, or another `Join` lives on the group or on a duplicate
  /// (deadlock).
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
