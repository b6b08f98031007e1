#pragma once

#include <ddp/failure/call.h>

/// The last collectives of this process, in preallocated memory, so that signal
/// handlers can write them to a file.
///
/// A process has one recorder for all groups. The recorder is global, since
/// signal handlers can use only global data. All functions are thread-safe.
namespace ddp::debug::flight_recorder {

constexpr size_t kCapacity = 1000;

enum class State { kChecking, kStarted, kCompleted, kFailed };

/// If DDP_DEBUG is set, SIGUSR1 from now on writes a dump if anything is
/// recorded, and does not end the process. A handler of the program is not
/// changed. Throws `c10::ValueError` for an invalid DDP_DEBUG.
void take_dump_signal();

/// Starts recording; only the first call, and the first one after
/// `await_new_rank`, has an effect. Dumps go to "rank_<rank>.json" in the
/// folder that DDP_DEBUG_FOLDER names, by default "ddp-debug" in the working
/// directory; an earlier file of this name gets ".previous" at its end. On rank
/// 0, so do the files of ranks from `size` on. After this call, SIGTERM, with
/// which launchers stop the ranks of a failed job, writes a dump, and then ends
/// the process. A handler of the program is not changed.
void enable(int64_t rank, int64_t size);

/// This process is in no group, and may have another rank in its next one: the
/// next call of `enable` starts an empty record.
void await_new_rank() noexcept;

/// The group and the rank of a call.
struct Caller {
  std::string group;
  std::string backend;
  int64_t rank = 0;
  int64_t size = 1;
};

/// Records the start of a call. `sequence` is the call's number among the
/// group's collectives, from 1, or 0 for a message between two ranks. Returns
/// the number that identifies the call.
uint64_t began(const Caller& caller, int64_t sequence, const Call& call);

/// Sets the state of a call if the call is still in the record.
void is_now(uint64_t number, State state) noexcept;

/// Writes the record to the file atomically. Does nothing if the record is
/// empty, or in a forked child process. Async-signal-safe.
void dump(const char* reason) noexcept;

/// Same as above, for an operation that has failed. `error` remains the reason
/// in the record even if the process crashes later. Returns text for the end of
/// the error message: the file's folder, or the reason why the file cannot be
/// written; empty if nothing is recorded, or in a forked child process. This
/// text is the same on all ranks, so that ddprun can show their errors once.
std::string dump_for(const std::string& error);

/// Same as above, and marks the call as failed.
inline std::string dump_for(uint64_t number, const std::string& error) {
  is_now(number, State::kFailed);
  return dump_for(error);
}

} // namespace ddp::debug::flight_recorder
