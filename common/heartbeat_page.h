#pragma once

#include <atomic>
#include <cstdint>

namespace ddp {

/// Memory that a rank which uses ddp shares with ddprun: the rank writes,
/// ddprun reads. An anonymous file of this size, whose descriptor the rank
/// inherits under the number in DDP_HEARTBEAT_FD. Zero until the rank attaches.
struct HeartbeatPage {
  static constexpr uint64_t kVersion = 2;
  static constexpr int kActivitySize = 200;

  /// kVersion once the rank has attached; written last.
  std::atomic<uint64_t> version;
  /// Grows with every sign of progress.
  std::atomic<uint64_t> beats;
  /// Not 0 once the rank's first group is formed.
  std::atomic<uint64_t> joined;
  /// Not 0 where a collective has failed because of another rank, until the
  /// rank's next group is formed.
  std::atomic<uint64_t> failed_by_another;
  /// Completed reductions of the Reducer that completed one last.
  std::atomic<int64_t> step;
  /// Odd while `activity` is being written.
  std::atomic<uint64_t> sequence;
  /// What the rank does, such as "bucket 3 of 5, step 12" or "barrier", or what
  /// it did last: "after barrier"; ends with a NUL. Relaxed bytes under
  /// `sequence`.
  std::atomic<char> activity[kActivitySize];
};

static_assert(
    std::atomic<uint64_t>::is_always_lock_free &&
        std::atomic<char>::is_always_lock_free,
    "the page is shared between processes");
static_assert(sizeof(HeartbeatPage) == 248, "rank and ddprun agree on it");

/// In an activity, between a bucket's step and the number of its Reducer, where
/// a program has several.
constexpr const char* kOfReducer = " of Reducer ";
/// An activity, a part of a backward.
constexpr const char* kBufferBroadcast = "broadcast of buffers";

constexpr const char* kHeartbeatVariable = "DDP_HEARTBEAT_FD";

} // namespace ddp
