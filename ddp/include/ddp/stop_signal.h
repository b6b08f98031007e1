#pragma once

#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <csignal>
#include <memory>
#include <vector>

namespace ddp {

/// Makes of a signal to any rank a stop at the same step on all ranks, so that
/// they can save and leave:
///
/// ```
/// ddp::StopSignal stop(group);
/// while (...) {
///   ...                                // a step
///   if (stop.requested()) {
///     state.save("run.pt", group);
///     break;
///   }
/// }
/// ```
///
/// Which ranks get it (ddprun passes SIGTERM on to all, a batch system may send
/// it to one), and when, does not matter. The same signal again within 2 s is
/// taken for the same request (a batch system and a launcher may both send it);
/// after that it does what it did before this object was: by default it ends
/// the process, so that one that hangs, or saves for too long, can be stopped.
/// SIGINT stays as it was unless it is among `signals`.
///
/// At most one per process at a time. Not thread-safe.
class DDP_API StopSignal {
 public:
  /// From now on takes these signals. Without communication. Throws
  /// `c10::Error` where there is another StopSignal, `c10::ValueError` where a
  /// number is no signal's that can be caught.
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
  /// host's memory also where the group has GPUs, and returns what they told in
  /// the call before: so it costs a step next to nothing, and a signal is
  /// answered one call later than it could be (in a group of one at once).
  /// Collective; throws as collectives do.
  bool requested();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace ddp
