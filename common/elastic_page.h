#pragma once

#include <common/heartbeat_page.h>

namespace ddp {

/// Memory that ddprun shares with a rank, after the HeartbeatPage. Through it
/// ddprun asks a rank of `ddp::elastic` to leave its group when the nodes of
/// the job change, and then passes the rank's place in the new group. All bytes
/// are initially zero. Each field has one writer, which its comment names
/// first.
struct ElasticPage {
  static constexpr uint32_t kVersion = 1;
  static constexpr int kVariablesSize = 3072;

  /// Rank: kVersion while ddprun may request a pause.
  std::atomic<uint32_t> elastic;
  /// Rank: the number of the last pause that the rank has begun. A paused rank
  /// is in no group.
  std::atomic<uint32_t> paused;
  /// ddprun: the number of requested pauses; a futex.
  std::atomic<uint32_t> asked;
  /// ddprun: the number of the last pause that has ended; a futex.
  std::atomic<uint32_t> over;
  /// ddprun: the time limit in ms for the rank to reach its next step, after
  /// which its waits for other ranks end.
  std::atomic<uint32_t> step_patience;
  /// ddprun: the time in ms that a rank whose peers have ended waits for a
  /// request; 0 if no request will arrive.
  std::atomic<uint32_t> loss_patience;
  /// ddprun, written before `over`: variables such as "RANK=3", each followed
  /// by a newline.
  char variables[kVariablesSize];
};

/// The contents of a rank's shared file. A rank with an older ddp, without
/// ElasticPage, uses only the beginning, and is never elastic.
struct RankPage {
  HeartbeatPage heartbeat;
  ElasticPage elastic;
};

static_assert(
    std::atomic<uint32_t>::is_always_lock_free &&
        sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
    "a futex needs a lock-free atomic of 32 bits");

} // namespace ddp
