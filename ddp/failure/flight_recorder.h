#pragma once

#include <ddp/failure/call.h>

/// The last collectives of this process, in memory that is there from the
/// start, so that signal handlers can write them to a file.
///
/// It is the process's, not a group's, and global: a signal handler reaches
/// nothing else. All functions may be called by several threads at once.
namespace ddp::debug::flight_recorder {

constexpr size_t kCapacity = 1000;

enum class State { kChecking, kStarted, kCompleted, kFailed };

/// Begins to record, once; the first call counts. Notes where dumps go: to
/// "rank_<rank>.json" in the folder that DDP_DEBUG_FOLDER names, or else
/// "ddp-debug" in the working directory; what an earlier job left there under
/// this name is removed. From now on SIGUSR1 writes one, and SIGTERM before it
/// ends the process, by which launchers stop the ranks of a job that has
/// failed; not where someone else handles the signal.
void enable(int64_t rank, int64_t size);

/// Whose call it is, as its group knows it.
struct Caller {
  std::string group;
  std::string backend;
  int64_t rank = 0;
  int64_t size = 1;
};

/// A call begins; `sequence` is its place among the group's collectives, from
/// 1, or 0 for a message between two ranks. Returns the number to name it by.
uint64_t began(const Caller& caller, int64_t sequence, const Call& call);

/// A call has come to another state, if it is still remembered.
void is_now(uint64_t number, State state) noexcept;

/// Writes what is known to the file, which others see whole or not at all.
/// Nothing happens where nothing is recorded, and in a forked child. For signal
/// handlers too.
void dump(const char* reason) noexcept;

/// The same where an operation has failed, which then stays the record's reason
/// also if the process crashes of it. For the end of the error's message: where
/// the file is, or nothing.
std::string dump_for(const std::string& error);

/// The same of a call that has failed, which is marked so.
inline std::string dump_for(uint64_t number, const std::string& error) {
  is_now(number, State::kFailed);
  return dump_for(error);
}

} // namespace ddp::debug::flight_recorder
