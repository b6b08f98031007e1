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

/// Makes of a signal to any rank a stop at the same step on all ranks, so that
/// they can save and leave:
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
/// Which ranks get it (ddprun passes SIGTERM on to all, a batch system may send
/// it to one), and when, does not matter. The same signal again within 2 s is
/// taken for the same request (a batch system and a launcher may both send it);
/// after that it does what it did before this object was: by default it ends
/// the process, so that one that hangs, or saves for too long, can be stopped.
/// SIGINT stays as it was unless it is among `signals`. Not thread-safe.
class DDP_API StopSignal {
 public:
  /// From now on takes these signals. Without communication. Throws
  /// `c10::Error` if there is another StopSignal, `c10::ValueError` if a number
  /// is not a signal's that can be caught.
  [[nodiscard]] explicit StopSignal(
      const ProcessGroup& group,
      const std::vector<int>& signals = {SIGTERM, SIGUSR1});
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Puts the handlers from before back. Without communication.
  ~StopSignal();

  /// Whether to stop, the same on all ranks; once true it stays true.
  ///
  /// Call it once in each step. It starts to tell the other ranks, in the
  /// host's memory also if the group has GPUs, and returns what they told in
  /// the call before: so it costs a step next to nothing, and a signal is
  /// answered one call later than it could be (in a group of one at once).
  /// Collective; throws as collectives do.
  bool requested();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ElasticOptions {
  /// For each group; its ranks and where they meet are the launcher's to say.
  TORCH_ARG(ProcessGroupOptions, group);

  /// After how many steps each rank keeps a copy of the state in its host's
  /// memory. If a node is lost, the job continues from the last copy.
  TORCH_ARG(int64_t, commit_every) = 1;
};

/// Thrown by `ElasticRun::step` if the nodes of the job change; for `elastic`
/// alone to catch.
class DDP_API MembershipChanged : public std::exception {
 public:
  const char* what() const noexcept override;
};

/// One call of the function that `elastic` runs.
class DDP_API ElasticRun {
 public:
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  const ProcessGroup& group() const;

  /// Puts `state`, whose parts have to live until the function returns, where
  /// the job was when its nodes changed: a rank that took part sends it to all,
  /// that with the most steps, or the lowest such rank. Returns false if there
  /// is none, as in a new job: then load a checkpoint, if there is one. From
  /// now on `step` keeps copies of this state. What each rank has of its own
  /// (random states) is left as it is, with a warning.
  ///
  /// Collective; throws `c10::Error` as `TrainingState::load_state_dict` does,
  /// and `c10::ValueError` for a part that is sharded over ranks
  /// (`ZeroRedundancyOptimizer`), of which each copy would have a share only.
  bool sync(const TrainingState& state);

  /// The end of a step, where the state is whole: keeps a copy of it. If the
  /// job's nodes change and no one is lost, all ranks throw `MembershipChanged`
  /// in the same call; agreeing on that costs a step next to nothing.
  /// Collective; throws as collectives do.
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

/// Forms the job's group and calls `train`; where nodes come or go meanwhile,
/// and ddprun runs the job, calls it again with the group of those that are
/// there then, in the same process:
///
///     ddp::elastic([](ddp::ElasticRun& run) {
///       auto net = std::make_shared<Net>();
///       ddp::Reducer reducer(net, run.group());
///       ...
///       ddp::TrainingState state;
///       state.add("net", net).add("optimizer", optimizer).add("loader",
///       *loader); run.sync(state); for (auto& batch : *loader) {
///         ...
///         run.step();
///       }
///     });
///
/// What `train` makes it makes anew in each call; by `sync` it goes on where
/// the job was. A node that joins makes all ranks leave at the same `step`, and
/// nothing is lost. Where a node is lost, collectives of the others throw, and
/// the job goes on from the last copy that `step` kept: what was done since
/// is done again, so that in the state each sample counts once.
///
/// `train` must let exceptions of collectives pass, and keep no group. One that
/// does not follow from such a change ends the job's attempt as ever. Where
/// `train` has returned on some rank, it is called no more on any, also on one
/// that joins. Without ddprun, or on one node, it is called once.
///
/// In place of `init_process_group`, with which it is collective; throws as
/// that does, and what `train` throws. `c10::ValueError` where the options
/// name a rank, a size or a master, or `commit_every` is less than 1.
DDP_API void elastic(
    const std::function<void(ElasticRun&)>& train,
    const ElasticOptions& options = {});

} // namespace ddp
