#pragma once

#include <common/file_descriptor.h>
#include <ddp/backends/common/backend.h>
#include <ddp/backends/shm/memory/memory.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddp::backends::shm {

/// Another rank, or this rank.
struct Peer {
  pid_t pid = 0;
  /// Becomes readable when the rank's process has ended.
  FileDescriptor process;
  std::shared_ptr<const Mapping> memory;
};

/// The ranks of one group, and their progress. Collectives consist of steps:
/// after all ranks have done a step, they read the data that each rank wrote in
/// this step. Only one thread at a time may use a context, unless a comment
/// states otherwise.
class Context {
 public:
  using Clock = std::chrono::steady_clock;

  Context(int rank, std::vector<Peer> peers, RankNames names = {});

  int rank() const {
    return rank_;
  }
  int size() const {
    return static_cast<int>(peers_.size());
  }
  /// The number of a rank in messages.
  int name(int rank) const {
    return names_.ranks.empty() ? rank : names_.ranks[rank];
  }
  /// The number of ranks in messages.
  int named_size() const {
    return names_.ranks.empty() ? size() : names_.size;
  }
  const Mapping& memory(int rank) const {
    return *peers_[rank].memory;
  }

  /// The slot to which this rank writes in this step. Own data of two steps ago
  /// is in the same slot.
  char* slot() const {
    return memory(rank_).slot(step_);
  }
  /// The slot to which a rank wrote `steps` (1 or 2) steps ago.
  char* slot(int rank, int steps) const {
    return memory(rank).slot(step_ - steps);
  }

  /// The header to fill in the first step of a collective. The type is set, the
  /// lengths are from an earlier header, and the other fields have their
  /// default values.
  CallHeader& publish(c10d::OpType type);
  /// The header of a rank. Call this in the second step.
  const CallHeader& published(int rank) const;
  /// Throws `c10::DistBackendError` if the ranks' calls differ. Call this in
  /// the second step; later steps may overwrite headers.
  void compare() const;

  /// Publishes that this rank has done the step.
  void finish_step();
  /// Waits until all ranks have done the step, or until `until`; returns
  /// whether all ranks have done the step. Polls without a pause for `spin`
  /// before sleeping. Throws `c10::DistBackendError` if a process has ended, or
  /// a rank has given up.
  bool all_finished(Clock::time_point until, std::chrono::nanoseconds spin);
  /// Returns a list of the other ranks that have not done the step, as text.
  std::string missing() const;

  /// Whether a rank's process has ended, or the rank has left. Thread-safe.
  bool has_ended(int rank) const;
  std::string describe_end(int rank) const;
  /// Ends the other ranks' waits for this reason; later reasons are ignored.
  /// Thread-safe.
  void abort(const std::string& reason);
  /// Publishes that this rank does no more steps.
  void leave();

 private:
  bool has_finished(int rank) const;
  /// Throws if a rank has given up before the rank `awaited` has done the step.
  void check_failures(int awaited) const;
  /// Throws if a rank that has not done the step can no longer do the step.
  void check_alive() const;
  bool await(int rank, Clock::time_point until, std::chrono::nanoseconds spin)
      const;

  /// Whether this process is the rank's; a forked child also has the memory.
  bool is_own_process() const;

  const pid_t process_;
  const int rank_;
  const std::vector<Peer> peers_;
  const RankNames names_;
  /// The number of steps that this rank has done.
  uint64_t step_ = 0;
};

/// The longest sleep between two checks of the other ranks.
constexpr std::chrono::milliseconds kLook(50);

} // namespace ddp::backends::shm
