#pragma once

#include <ddp/checkpoint/training_state.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <ddp/process_group_options.h>
#include <torch/arg.h>

#include <csignal>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace ddp {

/// Turns a signal to any rank into a stop at the same step on all ranks, so
/// that all can save and exit:
///
///     ddp::StopSignal stop(group);
///     while (...) {
///       ...                                // a step
///       if (stop.requested()) {
///         state.save("run.pt", group);
///         break;
///       }
///     }
///
/// Any rank may get the signal at any time: ddprun forwards SIGTERM to all
/// ranks; a batch system may signal one. The same signal within 2 s, as by
/// a batch system and a launcher, has no effect. A later repetition has its
/// former effect: by default, ending a process that hangs or saves too long.
/// SIGINT is unaffected unless it is among `signals`. Within `elastic`, pass
/// `{SIGUSR1}`: otherwise, SIGTERM to one node's ddprun ends the training on
/// all nodes. Not thread-safe.
class DDP_API StopSignal {
 public:
  /// Installs handlers for `signals`. Not collective. Throws `c10::Error` if
  /// another StopSignal exists, and `c10::ValueError` if a number is not a
  /// signal that can be caught.
  [[nodiscard]] explicit StopSignal(
      const ProcessGroup& group,
      const std::vector<int>& signals = {SIGTERM, SIGUSR1});
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Restores the former handlers. If an exception ends `train` of `elastic`,
  /// the handlers remain, and a signal counts for the next StopSignal. Not
  /// collective.
  ~StopSignal();

  /// Returns whether to stop, equal on all ranks; once true, always true.
  ///
  /// Call this method once per step. A call starts an exchange with the other
  /// ranks, in host memory even if the group has GPUs, and returns the result
  /// of the previous exchange. The cost is thus negligible, and a signal takes
  /// effect one call later (immediately in a group of one). Collective; throws
  /// as collectives do.
  bool requested();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Options of `elastic`.
struct ElasticOptions {
  /// Options of each group; the launcher sets the ranks and the master.
  TORCH_ARG(ProcessGroupOptions, group);

  /// The number of steps after which each rank copies the state to its host's
  /// memory. If a node is lost, the job resumes from the last copy.
  TORCH_ARG(int64_t, commit_every) = 1;
};

/// Thrown by `ElasticRun::step` if the nodes of the job change; only `elastic`
/// may catch this exception.
class DDP_API MembershipChanged : public std::exception {
 public:
  const char* what() const noexcept override; ///< The message.
};

/// One call to the function that `elastic` runs.
class DDP_API ElasticRun {
 public:
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  const ProcessGroup& group() const; ///< The ranks of this call.

  /// Restores the parts of `state`, which must outlive this call to `train`, to
  /// their values before the job's nodes changed. The rank with the most steps
  /// (the lowest of several) sends its copy to all ranks. Returns false if no
  /// rank has a copy, as in a new job; the program may then load a checkpoint.
  /// After this call, `step` copies this state. Parts that differ between ranks
  /// (random states) do not change; a warning reports these parts.
  ///
  /// Collective; throws `c10::Error` as `TrainingState::load_state_dict` does,
  /// and `c10::ValueError` for a part that is sharded across ranks
  /// (`ZeroRedundancyOptimizer`), since each copy would have only a shard.
  bool sync(const TrainingState& state);

  /// Ends a step, and copies the state, which must be complete. If the job's
  /// nodes change and none is lost, all ranks throw `MembershipChanged` in the
  /// same call, at negligible cost. Collective; throws as collectives do.
  void step();

 private:
  friend void elastic(
      const std::function<void(ElasticRun&)>&,
      const ElasticOptions&);
  explicit ElasticRun(const ElasticOptions& options);
  ~ElasticRun();

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Forms the job's group and calls `train`. If ddprun runs the job and nodes
/// join or leave, calls `train` again with the new group, in the same process:
///
///     ddp::elastic([](ddp::ElasticRun& run) {
///       auto net = std::make_shared<Net>();
///       ddp::Reducer reducer(net, run.group());
///       ...
///       ddp::TrainingState state;
///       state.add("net", net).add("optimizer", optimizer);
///       state.add("loader", *loader);
///       run.sync(state);
///       for (auto& batch : *loader) {
///         ...
///         run.step();
///       }
///     });
///
/// Each call to `train` creates its objects again; `sync` resumes the job. If a
/// node joins, all ranks leave `train` at the same `step`, and nothing is lost.
/// If a node is lost, collectives of the other nodes throw, and the job resumes
/// from the last copy that `step` kept. Later steps are repeated, so each
/// sample counts once in the state.
///
/// `train` must not catch exceptions of collectives, or keep a group. An
/// exception with another cause ends the job's attempt as usual. Once `train`
/// has returned on some rank, no rank calls `train` again, not even a new rank,
/// unless a node is lost after ranks of another have ended: all then start
/// anew.
/// Without ddprun, or on one node, `train` is called once.
///
/// Replaces `init_process_group`. Collective. Throws as `init_process_group`
/// and `train` do, and `c10::ValueError` if the options name a rank, a size or
/// a master, or `commit_every` is less than 1.
DDP_API void elastic(
    const std::function<void(ElasticRun&)>& train,
    const ElasticOptions& options = {});

} // namespace ddp
