#pragma once

#include <c10/util/Exception.h>
#include <ddp/export.h>
#include <ddp/joinable.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddp {

/// Thrown on all ranks where the inputs of some have ended, if a `Join` is
/// asked for it.
class DDP_API EarlyTermination : public c10::Error {
  using Error::Error;
};

/// Options of `Join`, by Python's names and defaults. All ranks must pass the
/// same.
struct JoinOptions {
  /// Whether gradients are divided by the size of the group, also where fewer
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

  /// `group`: over what ranks tell each other that they go on, one message of
  /// 8 bytes for each rank and call; nothing else may use it meanwhile but the
  /// joinables. All ranks pass the same joinables in the same order. Not
  /// collective. Throws `c10::ValueError` where there is none, one is there
  /// twice or has a `Join` already, or another `Join` lives on the group or on
  /// a duplicate of it: the two would wait for each other.
  [[nodiscard]] Join(
      const ProcessGroup& group,
      const Joinables& joinables,
      const JoinOptions& options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Calls `finish()`, unless an exception is on its way through the scope.
  ~Join() noexcept(false);

  /// This rank has no more inputs: shadows the others until none has. Throws
  /// what a collective does, and `EarlyTermination` where a rank has inputs and
  /// `throw_on_early_termination` is set. Collective.
  void finish();

 private:
  friend class Joinable;

  JoinStep announce(const Joinable& joinable, int64_t call);
  bool shares(const Joinable& joinable) const;
  void shadow();
  void complete_before(const Joinable& next);
  std::vector<int64_t> exchange(int64_t code);
  JoinStep step_of(const std::vector<int64_t>& codes, int64_t code);
  void release();

  ProcessGroup group_;
  JoinOptions options_;
  std::vector<Joinable*> joinables_; // empty when it has ended
  /// Those whose shadow is under way.
  std::vector<Joinable*> shadowing_;
  int64_t root_;
  int exceptions_at_construction_;
};

} // namespace ddp
