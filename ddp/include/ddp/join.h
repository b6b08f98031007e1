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

/// One call of `Joinable::notify_join_context` in a `Join`, the same on all
/// ranks.
struct JoinStep {
  /// What the ranks that have inputs are about to do, as they passed it.
  int64_t call = 0;
  /// How many ranks have inputs, and the highest of them.
  int64_t live = 1;
  int64_t last_live = 0;
  /// What means are to be divided by: the size of the group or, without
  /// `divide_by_initial_world_size`, `live`.
  int64_t divisor = 1;
};

/// Something that communicates in each step, in which ranks without inputs have
/// to take part: a Reducer, a sharded optimizer, a program's own collectives.
///
/// Derive from it, call `notify_join_context` right before the collectives, and
/// have `main_hook` call the same collectives with neutral values. Source: the
/// meaning is that of torch/distributed/algorithms/join.py.
class DDP_API Joinable {
 public:
  Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable();

 protected:
  /// To be called before the collectives of each step: tells the ranks without
  /// inputs to call theirs. `call`, not negative, tells several kinds apart.
  /// Nothing, at no cost, unless a `Join` of this object lives. Collective then
  /// over the `Join`'s group. Throws `EarlyTermination` if a rank's inputs have
  /// ended and `throw_on_early_termination` is set, and `c10::Error` if other
  /// ranks announce something else.
  std::optional<JoinStep> notify_join_context(int64_t call = 0);

  /// Whether a `Join` of this object lives with `throw_on_early_termination`.
  bool throws_early() const;

  /// Whether a `Join` of this object lives in which the collectives of another
  /// one may begin before this one's end; both overlap (see below). Then
  /// `complete_main_hook` is called when the next `notify_join_context` comes,
  /// so what communicates at the end needs one of its own.
  bool shares_steps() const;

  /// Called on each rank without inputs where the others call
  /// `notify_join_context`.
  virtual void main_hook(const JoinStep& step) = 0;

  /// Whether `main_hook` only starts collectives, which `complete_main_hook`
  /// waits for: if others may begin before, as Reducers that share a backward.
  virtual bool overlaps() const {
    return false;
  }
  virtual void complete_main_hook() {}

  /// Called on all ranks when the last one has joined. `root` had inputs as
  /// long as any other.
  virtual void post_hook(int64_t /*root*/) {}

 private:
  friend struct detail::JoinState;
  detail::JoinState* join_ = nullptr;
};

/// Thrown on all ranks if inputs of one have ended, if a `Join` asks for it.
class DDP_API EarlyTermination : public c10::Error {
  using Error::Error;
};

/// Options of `Join`, by Python's names and defaults. All ranks must pass the
/// same.
struct JoinOptions {
  /// Whether gradients are divided by the size of the group, also if fewer
  /// ranks have inputs: each sample counts the same. Without it, by the number
  /// of those that have: each step counts the same. A communication hook that
  /// takes unscaled gradients divides by what it likes.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;

  /// Whether all ranks throw `EarlyTermination` as soon as one has no inputs,
  /// for programs with collectives that cannot be shadowed: a wrapper before
  /// its forward, an attached Reducer when backward begins.
  TORCH_ARG(bool, throw_on_early_termination) = false;

  /// Off, there is no `Join`: for loops that know their inputs to be even.
  TORCH_ARG(bool, enable) = true;
};

/// Lets ranks have different numbers of steps. At the end of its scope a rank
/// whose inputs have ended takes part in what the others still do, until theirs
/// have ended too:
///
///     {
///       auto join = reducer.join();
///       for (auto& batch : *loader) {
///         ... forward, backward and step as ever
///       }
///     }
///
/// Gradients of ranks without inputs count as zero, and they get the means of
/// the others, which `Reducer::step_in_backward` steps by. In the end all have
/// the parameters and buffers of the highest rank that had inputs longest. A
/// rank's optimizer keeps its state of its last step, unless it steps in
/// backward or is a `ZeroRedundancyOptimizer`.
///
/// An exception that leaves the scope passes through, as without a `Join`.
class DDP_API Join {
 public:
  using Joinables = std::vector<std::reference_wrapper<Joinable>>;

  /// `group`: over what ranks tell each other that they continue, one message
  /// of 8 bytes for each rank and call; nothing else may use it meanwhile but
  /// the joinables. All ranks pass the same joinables in the same order. Not
  /// collective. Throws `c10::ValueError` if there is none, one is there twice
  /// or has a `Join` already, or another `Join` lives on the group or on a
  /// duplicate of it: the two would wait for each other.
  [[nodiscard]] Join(
      const ProcessGroup& group,
      const Joinables& joinables,
      const JoinOptions& options = {});

  /// Calls `finish()`, unless an exception is on its way through the scope.
  ~Join() noexcept(false);

  /// This rank has no more inputs: shadows the others until none has. Throws
  /// what a collective does, and `EarlyTermination` if a rank has inputs and
  /// `throw_on_early_termination` is set. Collective.
  void finish();

 private:
  std::unique_ptr<detail::JoinState> state_;
};

} // namespace ddp
