#pragma once

#include <common/file_descriptor.h>
#include <ddp/backends/shm/memory/memory.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddp::backends::shm {

/// Another rank, or this one.
struct Peer {
  pid_t pid = 0;
  /// Readable once its process has ended.
  FileDescriptor process;
  std::shared_ptr<const Mapping> memory;
};

/// The ranks of one group, and how far each has come. Collectives go in steps:
/// what a rank writes in one step the others read after it, when all have done
/// the step. One thread at a time uses this, except if it is said.
class Context {
 public:
  using Clock = std::chrono::steady_clock;

  Context(int rank, std::vector<Peer> peers);

  int rank() const {
    return rank_;
  }
  int size() const {
    return static_cast<int>(peers_.size());
  }
  const Mapping& memory(int rank) const {
    return *peers_[rank].memory;
  }

  /// The slot for what this rank writes in this step.
  char* slot() const {
    return memory(rank_).slot(step_);
  }
  /// What a rank wrote into its slot `steps` ago, 1 or 2.
  char* slot(int rank, int steps) const {
    return memory(rank).slot(step_ - steps);
  }

  /// What to complete in the first step of a collective: it speaks of nothing
  /// but the type, and its lengths are as before.
  Announcement& announce(c10d::OpType type);
  /// What a rank announced. In the second step.
  const Announcement& announced(int rank) const;
  /// Throws `c10::DistBackendError` if ranks do different things. In the second
  /// step, after which what was announced may be overwritten.
  void compare() const;

  /// Says that this rank has done the step.
  void finish_step();
  /// Waits until all have, or `until`; whether they have. Looks without a pause
  /// for `spin` before it sleeps. Throws `c10::DistBackendError` if that cannot
  /// be any more: a process has ended, or a rank gave up.
  bool all_finished(Clock::time_point until, std::chrono::nanoseconds spin);
  /// The others that have not done the step, in words.
  std::string missing() const;

  /// Whether a rank's process has ended, or the rank has left. By any thread.
  bool has_ended(int rank) const;
  std::string describe_end(int rank) const;
  /// Lets the others' waits end with the reason, the first that was given. By
  /// any thread.
  void abort(const std::string& reason);
  /// Says that this rank does no more steps.
  void leave();

 private:
  bool has_finished(int rank) const;
  /// Throws where a rank gave up.
  void check_failures() const;
  /// Throws where a rank that has not done the step never will.
  void check_alive() const;
  bool await(int rank, Clock::time_point until, std::chrono::nanoseconds spin)
      const;

  const int rank_;
  const std::vector<Peer> peers_;
  /// How many steps this rank has done.
  uint64_t step_ = 0;
};

/// Sleeps end after this time, to see whether all is well.
constexpr std::chrono::milliseconds kLook(50);

} // namespace ddp::backends::shm
