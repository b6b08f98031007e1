#pragma once

#include <atomic>
#include <cstdint>

namespace ddp {

/// Memory that a rank with ddp shares with ddprun: the rank writes, ddprun
/// reads. The memory is an anonymous file of this size. The rank inherits the
/// file's descriptor, whose number is in DDP_HEARTBEAT_FD. All bytes are zero
/// until the rank attaches.
struct HeartbeatPage {
  static constexpr uint64_t kVersion = 2;
  static constexpr int kActivitySize = 200;

  /// kVersion once the rank has attached; written last.
  std::atomic<uint64_t> version;
  /// Incremented with every sign of progress.
  std::atomic<uint64_t> beats;
  /// Not 0 once the rank's first group is formed.
  std::atomic<uint64_t> joined;
  /// After a collective has failed because of another rank, the size of the
  /// first such collective's group, until the rank's next group is formed; else
  /// 0.
  std::atomic<uint64_t> failed_by_another;
  /// The number of reductions completed by the Reducer that last completed one.
  std::atomic<int64_t> step;
  /// Odd while `activity` is being written.
  std::atomic<uint64_t> sequence;
  /// The rank's current activity, such as "bucket 3 of 5, step 12" or
  /// "barrier", or its last one: "after barrier". NUL-terminated. Accesses to
  /// the bytes are relaxed; `sequence` guards them.
  std::atomic<char> activity[kActivitySize];
};

static_assert(
    std::atomic<uint64_t>::is_always_lock_free &&
        std::atomic<char>::is_always_lock_free,
    "atomics in shared memory must be lock-free");
static_assert(
    sizeof(HeartbeatPage) == 248,
    "ranks and ddprun share this layout");

/// Separates a bucket's step from the number of its Reducer in an activity, if
/// a program has several Reducers.
constexpr const char* kOfReducer = " of Reducer ";
/// The activity of a buffer broadcast, which counts as part of a backward pass.
constexpr const char* kBufferBroadcast = "broadcast of buffers";

constexpr const char* kHeartbeatVariable = "DDP_HEARTBEAT_FD";

} // namespace ddp
